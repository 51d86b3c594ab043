// OpenSSL, with TLS 1.2 as the oldest version.
#include "server/http/tls.h"

#include <fmt/core.h>
#include <openssl/ssl.h>

#include <boost/system/system_error.hpp>

namespace braid {
namespace {

namespace ssl = boost::asio::ssl;

Error BadFile(const char* flag, const std::string& file, const std::string& why) {
  return {ErrorCode::kInvalid, fmt::format("{} {}: {}", flag, file, why), flag};
}

}  // namespace

Result<std::unique_ptr<ssl::context>> LoadTls(const TlsFiles& files) {
  std::unique_ptr<ssl::context> context;
  try {
    context = std::make_unique<ssl::context>(ssl::context::tls_server);
  } catch (const boost::system::system_error& error) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--tls-cert: OpenSSL does not start: {}; OPENSSL_CONF, if set, must "
                             "name a configuration for {}",
                             error.what(), OPENSSL_VERSION_TEXT),
                 "--tls-cert"};
  }
  boost::system::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                           ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                           ssl::context::no_tlsv1_1 | ssl::context::no_compression |
                           SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE,
                       error);
  // By default OpenSSL would ask for a key's pass phrase on the terminal.
  SSL_CTX_set_default_passwd_cb(context->native_handle(), [](char*, int, int, void*) { return 0; });
  context->use_certificate_chain_file(files.certificate, error);
  if (error) {
    return BadFile("--tls-cert", files.certificate,
                   "no certificate in PEM form can be read: " + error.message());
  }
  context->use_private_key_file(files.key, ssl::context::pem, error);
  if (error) {
    return BadFile("--tls-key", files.key,
                   "no key that belongs to the certificate can be read, in PEM form and without a "
                   "pass phrase: " +
                       error.message());
  }
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return BadFile("--tls-key", files.key, "is not the key of the certificate in --tls-cert");
  }
  return context;
}

}  // namespace braid
