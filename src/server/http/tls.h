// TLS of the listeners: a certificate chain and its key from PEM files. Existing connections keep
// their certificate when another is loaded.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "base/result.h"
#include "server/http/options.h"

namespace braid {

// kInvalid, with the file's name and what is wrong with it. TLS 1.2 and later.
Result<std::unique_ptr<boost::asio::ssl::context>> LoadTls(const TlsFiles& files);

}  // namespace braid
