# Adds the agent to an engine image, for people who run it by hand inside the image. The controller does not
# need this: it mounts the agent into the image as it is. Built from the repository's root after `make build`:
#   docker build -t tokenspeed-with-agent -f docker/agent.Dockerfile --build-arg ENGINE=<engine image> dist
# Then, inside: TS_MODEL=Qwen/Qwen3-0.6B TS_OUT_DIR=/tmp/out agent
ARG ENGINE=lightseekorg/tokenspeed-amd@sha256:60c12e37c01496891053b9c30c4204e5d1cf9b4b641859d3aadcbd95bccc7c78
FROM ${ENGINE}
COPY agent /usr/local/bin/agent
