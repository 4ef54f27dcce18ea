#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/grpc/grpc_module.h"

namespace lopt {
namespace {

// Of OpenSSL's free functions.
template <auto kFree>
struct FreedBy {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Owned = std::unique_ptr<X509, FreedBy<X509_free>>;
using KeyOwned = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;
using BioOwned = std::unique_ptr<BIO, FreedBy<BIO_free>>;

BioOwned BioOf(const std::string& text) {
  return BioOwned(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Asks nobody for the password of an encrypted key.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writes*/, void* /*data*/) { return -1; }

// At least one.
std::vector<X509Owned> CertificatesOf(const std::string& text, const std::string& file) {
  const BioOwned bio = BioOf(text);
  std::vector<X509Owned> certificates;
  while (X509* const read = PEM_read_bio_X509(bio.get(), nullptr, &NoPassword, nullptr)) {
    certificates.emplace_back(read);
  }
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  Require(!certificates.empty() && at_end, "{} holds {} (PEM)", file,
          certificates.empty() ? "no certificate" : "a damaged certificate");
  return certificates;
}

std::string TextOf(const ASN1_TIME* time) {
  const BioOwned bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(size)};
}

// Why a certificate is not valid now; empty if it is.
std::string OutOfDate(const X509Owned& certificate) {
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(end) < 0) return "expired on " + TextOf(end);
  if (X509_cmp_current_time(begin) > 0) return "is valid only from " + TextOf(begin) + " on";
  return "";
}

}  // namespace

void grpc_module::CheckTls(const TlsTexts& tls, const TlsFiles& files) {
  const std::vector<X509Owned> chain = CertificatesOf(tls.certificate, files.certificate);
  const KeyOwned key(PEM_read_bio_PrivateKey(BioOf(tls.key).get(), nullptr, &NoPassword, nullptr));
  ERR_clear_error();
  Require(key != nullptr, "{} holds no private key without a password (PEM)", files.key);
  const bool match = X509_check_private_key(chain[0].get(), key.get()) == 1;
  ERR_clear_error();
  Require(match, "the key in {} belongs to another certificate than that in {}", files.key,
          files.certificate);
  for (const X509Owned& certificate : chain) {
    const std::string why = OutOfDate(certificate);
    Require(why.empty(), "the certificate in {} {}", files.certificate, why);
  }
  // Others may have signed, too.
  const std::vector<X509Owned> authorities = CertificatesOf(tls.authorities, files.authorities);
  const bool none = std::ranges::none_of(
      authorities, [](const X509Owned& authority) { return OutOfDate(authority).empty(); });
  Require(!none, "the certificate in {} {}", files.authorities, OutOfDate(authorities[0]));
}

}  // namespace lopt
