"""Where the inspector is served."""

ROOT = "/inspector/"
API = f"{ROOT}api/"
CHAT = f"{API}chat"
"""Where the page itself chats, as a client of OpenAI's API would."""
