# The demo for those who have no Debian:
#	docker build -t shedlock . && docker run --rm -it shedlock
# and the tests: docker run --rm -it shedlock scripts/test
FROM debian:12
WORKDIR /shedlock
COPY . .
CMD ["scripts/demo"]
