# The engine's stand-in and nothing else: no shell, no libc. Built from the repository's root after `make build`:
#   docker build -t ts-bench/stand-in -f docker/stand-in.Dockerfile dist
FROM scratch
COPY tokenspeed /usr/local/bin/tokenspeed
ENV PATH=/usr/local/bin
