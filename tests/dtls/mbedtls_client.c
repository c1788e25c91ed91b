/* A device with mbed TLS: HOST PORT GATEWAY-NAME IDENTITY CA; sends "hello\n", prints the answer. */
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/timing.h>
#include <stdio.h>

static int check(const char *what, int code) {
    if (code < 0) {
        fprintf(stderr, "%s: -0x%04x\n", what, -code);
        exit(1);
    }
    return code;
}

int main(int count, char **words) {
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_ssl_config config;
    mbedtls_ssl_context ssl;
    mbedtls_x509_crt own, authority;
    mbedtls_pk_context key;
    mbedtls_timing_delay_context timer;
    mbedtls_net_context net;
    unsigned char answer[1200];
    int code;

    if (count != 6)
        return 2;
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_ssl_config_init(&config);
    mbedtls_ssl_init(&ssl);
    mbedtls_x509_crt_init(&own);
    mbedtls_x509_crt_init(&authority);
    mbedtls_pk_init(&key);
    mbedtls_net_init(&net);
    check("seed", mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0));
    check("certificate", mbedtls_x509_crt_parse_file(&own, words[4]));
    check("ca", mbedtls_x509_crt_parse_file(&authority, words[5]));
    check("key", mbedtls_pk_parse_keyfile(&key, words[4], NULL));
    check("connect", mbedtls_net_connect(&net, words[1], words[2], MBEDTLS_NET_PROTO_UDP));
    check("defaults", mbedtls_ssl_config_defaults(&config, MBEDTLS_SSL_IS_CLIENT, MBEDTLS_SSL_TRANSPORT_DATAGRAM,
                                                  MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
    mbedtls_ssl_conf_ca_chain(&config, &authority, NULL);
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &random);
    mbedtls_ssl_conf_read_timeout(&config, 10000);
    check("own", mbedtls_ssl_conf_own_cert(&config, &own, &key));
    check("setup", mbedtls_ssl_setup(&ssl, &config));
    check("name", mbedtls_ssl_set_hostname(&ssl, words[3]));
    mbedtls_ssl_set_mtu(&ssl, 1200);
    mbedtls_ssl_set_bio(&ssl, &net, mbedtls_net_send, mbedtls_net_recv, mbedtls_net_recv_timeout);
    mbedtls_ssl_set_timer_cb(&ssl, &timer, mbedtls_timing_set_delay, mbedtls_timing_get_delay);
    do
        code = mbedtls_ssl_handshake(&ssl);
    while (code == MBEDTLS_ERR_SSL_WANT_READ || code == MBEDTLS_ERR_SSL_WANT_WRITE);
    check("handshake", code);
    check("write", mbedtls_ssl_write(&ssl, (const unsigned char *)"hello\n", 6));
    code = check("read", mbedtls_ssl_read(&ssl, answer, sizeof answer));
    fwrite(answer, 1, (size_t)code, stdout);
    mbedtls_ssl_close_notify(&ssl);
    return 0;
}
