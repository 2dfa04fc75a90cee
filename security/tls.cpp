// SPDX-License-Identifier: Apache-2.0
#include "security/tls.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/socket.h>

namespace plexus::security {
namespace {

/// Both sides know one key only, so that its name says nothing.
constexpr unsigned char kIdentity[] = {'p', 'l', 'e', 'x', 'u', 's'};
constexpr unsigned char kCipher[] = {0x13, 0x01};
constexpr const char* kCipherName = "TLS_AES_128_GCM_SHA256";
/// Several records are read with one system call.
constexpr size_t kReadAheadBytes = size_t{128} << 10;
/// From this version of the library on, in which records are handled anew, what has been read ahead
/// is gone when the other side renews its key: seen with 3.5.
constexpr unsigned long kLosesReadAhead = 0x30200000;

std::string last_reason() {
  const unsigned long code = ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "unknown reason" : reason;
}

// ---- the socket ----

/// Keeps a write to a connection that is gone from ending the process, where no flag can.
class BlockedPipeSignal {
 public:
  BlockedPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BlockedPipeSignal() {
    const int error = errno;
    if (!was_pending_) {
      const timespec now{};
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  BlockedPipeSignal(const BlockedPipeSignal&) = delete;
  BlockedPipeSignal& operator=(const BlockedPipeSignal&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

/// OpenSSL's own would raise SIGPIPE. With kTLS it also sends what is no data, in its own way.
int write_to_socket(BIO* bio, const char* bytes, int size_bytes) {
  if (BIO_get_ktls_send(bio) != 0) {
    const BlockedPipeSignal blocked;
    return BIO_meth_get_write(BIO_s_socket())(bio, bytes, size_bytes);
  }
  BIO_clear_retry_flags(bio);
  const auto sent = static_cast<int>(::send(static_cast<int>(BIO_get_fd(bio, nullptr)), bytes,
                                            static_cast<size_t>(size_bytes), MSG_NOSIGNAL));
  if (sent <= 0 && BIO_sock_should_retry(sent) != 0) {
    BIO_set_retry_write(bio);
  }
  return sent;
}

/// OpenSSL's socket, but for writing.
BIO_METHOD* make_socket_method() {
  BIO_METHOD* const made = BIO_meth_new(BIO_TYPE_SOCKET, "socket without SIGPIPE");
  if (made != nullptr) {
    const BIO_METHOD* const plain = BIO_s_socket();
    BIO_meth_set_create(made, BIO_meth_get_create(plain));
    BIO_meth_set_destroy(made, BIO_meth_get_destroy(plain));
    BIO_meth_set_ctrl(made, BIO_meth_get_ctrl(plain));
    BIO_meth_set_read(made, BIO_meth_get_read(plain));
    BIO_meth_set_write(made, &write_to_socket);
  }
  return made;
}

// ---- the key ----

SSL_SESSION* make_session(SSL* ssl) {
  const auto* const tls = static_cast<const Tls*>(SSL_get_app_data(ssl));
  const Mac psk = authenticate(tls->key(), "tls", {});
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipher);
  SSL_SESSION* const session = SSL_SESSION_new();
  const bool is_made = session != nullptr && cipher != nullptr &&
                       SSL_SESSION_set1_master_key(session, psk.data(), psk.size()) == 1 &&
                       SSL_SESSION_set_cipher(session, cipher) == 1 &&
                       SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  if (!is_made) {
    SSL_SESSION_free(session);
    return nullptr;
  }
  return session;
}

int use_session(SSL* ssl,
                const EVP_MD* digest,
                const unsigned char** identity,
                size_t* identity_bytes,
                SSL_SESSION** session) {
  *session = nullptr;
  if (digest != nullptr && EVP_MD_is_a(digest, "SHA256") == 0) {
    return 1;
  }
  *identity = kIdentity;
  *identity_bytes = sizeof kIdentity;
  *session = make_session(ssl);
  return *session != nullptr ? 1 : 0;
}

int find_session(SSL* ssl,
                 const unsigned char* identity,
                 size_t identity_bytes,
                 SSL_SESSION** session) {
  const bool is_ours =
      std::equal(std::begin(kIdentity), std::end(kIdentity), identity, identity + identity_bytes);
  *session = is_ours ? make_session(ssl) : nullptr;
  return is_ours && *session == nullptr ? 0 : 1;
}

// ---- what all connections share ----

struct Library {
  SSL_CTX* context = nullptr;
  BIO_METHOD* socket = nullptr;
};

/// Null members: it failed, and OpenSSL knows why.
Library make_library() {
  // Threads of ours may run until the process has ended. Without effect if the program has
  // initialised OpenSSL before.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherName) != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1) {
    SSL_CTX_free(context);
    return {};
  }
  // A connection that is cut is an error to those who use it, whether TLS says goodbye or not.
  SSL_CTX_set_options(context,
                      SSL_OP_ENABLE_KTLS | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, &use_session);
  SSL_CTX_set_psk_find_session_callback(context, &find_session);
  return {context, make_socket_method()};
}

/// Constant once made, and never freed: connections of other threads may outlive exit().
const Library& library() {
  static const Library made = make_library();
  return made;
}

}  // namespace

std::unique_ptr<Tls> Tls::start(int fd, Role role, const Key& key, std::string& error) {
  const Library& shared = library();  // first: ERR_clear_error() would initialise OpenSSL as well
  ERR_clear_error();
  std::unique_ptr<Tls> tls(new Tls(key));
  tls->ssl_ = shared.context == nullptr ? nullptr : SSL_new(shared.context);
  BIO* const bio = shared.socket == nullptr ? nullptr : BIO_new(shared.socket);
  if (tls->ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    error = "OpenSSL cannot make a TLS connection: " + last_reason();
    return nullptr;
  }
  BIO_set_fd(bio, fd, BIO_NOCLOSE);
  SSL_set_bio(tls->ssl_, bio, bio);
  SSL_set_app_data(tls->ssl_, tls.get());
  if (role == Role::kCaller) {
    SSL_set_connect_state(tls->ssl_);
    // No authority is known, so that one who offers a certificate in place of the key is refused.
    SSL_set_verify(tls->ssl_, SSL_VERIFY_PEER, nullptr);
  } else {
    SSL_set_accept_state(tls->ssl_);
  }
  return tls;
}

Tls::~Tls() { SSL_free(ssl_); }

/// Sets errno as receive() says. Returns 0 when the other side has closed, else -1.
int Tls::judge(int result) {
  const int error = errno;
  wants_to_write_ = false;
  may_have_more_ = false;
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_WRITE:
      wants_to_write_ = true;
      [[fallthrough]];
    case SSL_ERROR_WANT_READ:
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      return 0;
    case SSL_ERROR_SYSCALL:
      errno = error;
      return error == 0 ? 0 : -1;
    default:
      error_ = "TLS ended it: " + last_reason();
      errno = EBADMSG;
      return -1;
  }
}

int Tls::shake_hands() {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_do_handshake(ssl_);
  if (result != 1) {
    return judge(result);
  }
  if (SSL_session_reused(ssl_) != 1) {  // the key was not used
    error_ = "TLS ended it: the other side did not use the secret";
    errno = EBADMSG;
    return -1;
  }
  wants_to_write_ = false;
  // Not before: a pending peer is to cost little. The buffers of the handshake are too small.
  SSL_free_buffers(ssl_);
  if (OpenSSL_version_num() < kLosesReadAhead) {
    SSL_set_read_ahead(ssl_, 1);
    SSL_set_default_read_buffer_len(ssl_, kReadAheadBytes);
  }
  may_have_more_ = true;
  return 1;
}

ssize_t Tls::receive(void* target, size_t size_bytes) {
  ERR_clear_error();
  errno = 0;
  size_t got_bytes = 0;
  const int result = SSL_read_ex(ssl_, target, size_bytes, &got_bytes);
  if (result != 1) {
    return judge(result);
  }
  may_have_more_ = true;
  return static_cast<ssize_t>(got_bytes);
}

ssize_t Tls::send(const void* source, size_t size_bytes) {
  ERR_clear_error();
  if (records_ >= records_per_key_ && !renew_key()) {
    return judge(-1);
  }
  errno = 0;
  size_t sent_bytes = 0;
  const int result = SSL_write_ex(ssl_, source, size_bytes, &sent_bytes);
  if (result != 1) {
    const bool may_have_more = may_have_more_;
    const int judged = judge(result);
    may_have_more_ = may_have_more;  // that is about receiving
    return judged == 0 ? (errno = EPIPE, -1) : judged;
  }
  ++records_;
  return static_cast<ssize_t>(sent_bytes);
}

/// The kernel cannot renew a key that it was given.
bool Tls::renew_key() {
  records_ = 0;
  return BIO_get_ktls_send(SSL_get_wbio(ssl_)) != 0 ||
         SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
}

}  // namespace plexus::security
