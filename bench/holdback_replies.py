"""Replies without calls to requests that offer tools."""

from __future__ import annotations

ORDINARY: dict[str, str] = {
    "a word": "Yes.",
    "a number": "42",
    "a greeting": "Hello! How can I help you today?",
    "thanks": "You're welcome! Have a nice day in Oslo.",
    "a question": "Which city do you mean: Oslo in Norway, or Oslo in Minnesota?",
    "one sentence": "In Oslo it is 12 °C and raining, with a light wind from the south-west.",
    "a paragraph": (
        "The weather in Oslo will stay mild until Thursday. After that a front from the west "
        "brings rain and a drop to about 4 °C, so it is wise to take a coat. The weekend looks "
        "dry again, though the wind may be strong along the fjord."
    ),
    "a long text": (
        "Binary search works on a sorted list. It looks at the middle element first: if that is "
        "the one, it is done; if it is too large, the search goes on in the left half, and "
        "otherwise in the right half. Every step halves what is left.\n\n"
    )
    * 6,
    "a heading": "## Summary\n\nThe build takes **three minutes**, most of it in the linker.\n",
    "a list": "- milk\n- bread\n- twelve eggs\n- *ripe* tomatoes\n- a lemon\n",
    "a numbered list": (
        "1. Open the settings.\n2. Choose *Network*.\n3. Turn the proxy off.\n4. Restart it.\n"
    ),
    "a table": (
        "| city | °C | wind |\n|---|---:|---|\n| Oslo | 12 | SW |\n| Bergen | 9 | W |\n\n"
        "Bergen is the colder of the two.\n"
    ),
    "bold first": "**Short answer:** it depends on the size of the file.",
    "code": (
        "Here is a function that does it:\n\n```python\ndef area(w: float, h: float) -> float:\n"
        '    if w < 0 or h < 0:\n        raise ValueError("negative")\n    return w * h\n```\n\n'
        "Call it as `area(2, 3)`.\n"
    ),
    "code first": "```sh\ngit rebase --interactive HEAD~3\n```\n\nThen mark what to squash.\n",
    "a shell session": (
        "Run these:\n\n```console\n$ ls -la | grep '^d' > dirs.txt\n$ wc -l < dirs.txt\n```\n"
    ),
    "JSON in a fence": (
        "The configuration should look like this:\n\n```json\n"
        '{\n  "retries": 2,\n  "upstreams": {"local": {"base_url": "http://localhost:8080/v1"}}\n}\n'
        "```\n\nSave it beside the program.\n"
    ),
    "HTML": (
        "Put it into the head:\n\n```html\n<head>\n  <title>Oslo</title>\n</head>\n```\n\n"
        "A `<title>` has no attributes.\n"
    ),
    "angle brackets": (
        "If a < b and b < c, then a < c. In C++ that is std::less<int>, and for pairs "
        "std::pair<int, std::vector<int>>. An arrow like <- or <= is not a tag; <b>this</b> is.\n"
    ),
    "a formula": "The area is $A = \\pi r^2$, so for $r = 3$ it is about $28.27$ {square units}.",
    "brackets": "See [the manual](https://example.org/manual) [1], and the notes [2, 3] below.",
    "a quotation": '"To be, or not to be" is from Hamlet, act III, scene 1.',
    "a dialogue": "Anna: Did you call him?\nBen: Not yet. I'll do it now.\nAnna: Thanks!\n",
    "a mail": (
        "Subject: Friday\n\nDear Ms Berg,\n\nthank you for the plan. Friday at ten is fine.\n\n"
        "Kind regards\nOla\n"
    ),
    "emoji": "Sunny all day in Oslo ☀️, 21 °C — enjoy it! 🎉\n",
    "German": "In Oslo sind es heute 12 °C, und am Abend regnet es. Nimm einen Schirm mit!",
    "French": "À Oslo, il fait 12 °C aujourd'hui, avec un peu de pluie dans la soirée.",
    "Spanish": "¡Claro! En Oslo hace 12 °C y llueve un poco por la tarde.",
    "Japanese": "オスロの現在の気温は12度で、夕方から雨が降る見込みです。傘をお持ちください。",
    "Chinese": "奥斯陆今天气温12度，傍晚有小雨，出门请带伞。",
    "Russian": "В Осло сегодня 12 °C, вечером ожидается небольшой дождь.",
    "Arabic": "درجة الحرارة في أوسلو اليوم 12 درجة مئوية، مع أمطار خفيفة في المساء.",
}
"""Answers that do not begin like a refusal."""

CANDIDATES: dict[str, str] = {
    "first person": "I looked at both files, and they differ only in their line endings.",
    "an intention": "I'll check the weather in Oslo for you, and then the trains to Bergen.",
    "an opinion": (
        "I think the second version is better: it is shorter, it says what it does, and nobody "
        "has to read the whole file to see that the lock is released in every case. The first "
        "one has a branch that is never taken, too."
    ),
    "an apology": (
        "I'm sorry for the mix-up! The meeting is on Friday at ten, in room 4, not on Thursday."
    ),
    "an apology in German": "Entschuldigung für die Verwirrung! Das Treffen ist am Freitag.",
    "bad luck": "Unfortunately the 9:15 train is full. The next one with seats leaves at 10:45.",
    "a comparison": "As you can see in the table, Bergen is colder than Oslo on every day but one.",
    "a reason": "Since both lists are sorted, one pass over them is enough to merge them.",
    "no": "No file has changed since the last commit, so there is nothing to build.",
    "my": "My suggestion: keep the first function, and delete the second one with its tests.",
    "praise": "I can't recommend this book enough: it is short, clear and full of good examples.",
    "long": (
        "While the first approach reads every file twice, the second one keeps what it has read "
        "in memory, which is faster as long as the files are small; where they are not, a third "
        "way is to keep only their hashes, and to read again what has changed. "
    )
    * 4,
}
"""Answers that begin like a refusal, but are not refusals."""

REFUSALS: dict[str, str] = {
    "no access": "I'm sorry, but I don't have access to real-time weather data.",
    "no tools": "Unfortunately, I cannot look up the weather, as I have no tools for that.",
    "German": "Leider kann ich keine aktuellen Wetterdaten abrufen.",
    "French": "Désolé, je n'ai pas accès à la météo en temps réel.",
    "for safety": "I can't help with breaking into somebody's account.",
    "with advice": (
        "I don't have access to live weather data. You could look at yr.no, which has a forecast "
        "for every hour, or at the app of your phone; both know Oslo well."
    ),
}
"""False and honest refusals, which are held back to their end."""

BEFORE_A_CALL: dict[str, str] = {
    "nothing much": "Sure.",
    "an announcement": "Let me look at the weather in Oslo.",
    "a plan": (
        "First the weather, then the trains: if it rains in Oslo on Friday, the trip to Bergen "
        "is better on Saturday. Here is the first of the two calls."
    ),
    "a list": "Two steps:\n\n1. the weather in Oslo,\n2. the trains to Bergen.\n",
    "in the first person": "I'll check the weather in Oslo for you.",
    "German": "Ich sehe mir das Wetter in Oslo an.",
    "with code": "The command `ls < in.txt` shows nothing, so the weather has to be asked for.",
}
"""Texts before a call."""
