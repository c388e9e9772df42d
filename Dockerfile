# The broker as an image: `docker build -t highwater .`, `docker run -p 9092:9092 -p 9308:9308 highwater`.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin highwater

FROM debian:bookworm-slim
RUN useradd --system --home-dir /var/lib/highwater --create-home highwater
COPY --from=build /src/target/release/highwater /usr/local/bin/highwater
USER highwater
VOLUME /var/lib/highwater
EXPOSE 9092 9308
# What clients are told is where the published port is; elsewhere than on this machine, set KAFKA_ADVERTISED_LISTENERS.
ENV KAFKA_LOG_DIRS=/var/lib/highwater \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_HTTP_LISTENERS=0.0.0.0:9308
STOPSIGNAL SIGTERM
ENTRYPOINT ["highwater"]
CMD ["serve"]
