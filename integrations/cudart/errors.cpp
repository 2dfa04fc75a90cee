// SPDX-License-Identifier: Apache-2.0
// Names of error codes and what they mean.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/immortal.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"

namespace plexus::cudart {
namespace {

struct Row {
  cudaError_t code;
  const char* name;
};
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the name of a code is its identifier
#define ROW(code) \
  Row { code, #code }
constexpr Row kRows[] = {
    ROW(cudaSuccess),
    ROW(cudaErrorInvalidValue),
    ROW(cudaErrorMemoryAllocation),
    ROW(cudaErrorInitializationError),
    ROW(cudaErrorCudartUnloading),
    ROW(cudaErrorProfilerDisabled),
    ROW(cudaErrorProfilerNotInitialized),
    ROW(cudaErrorProfilerAlreadyStarted),
    ROW(cudaErrorProfilerAlreadyStopped),
    ROW(cudaErrorInvalidConfiguration),
    ROW(cudaErrorInvalidPitchValue),
    ROW(cudaErrorInvalidSymbol),
    ROW(cudaErrorInvalidHostPointer),
    ROW(cudaErrorInvalidDevicePointer),
    ROW(cudaErrorInvalidTexture),
    ROW(cudaErrorInvalidTextureBinding),
    ROW(cudaErrorInvalidChannelDescriptor),
    ROW(cudaErrorInvalidMemcpyDirection),
    ROW(cudaErrorAddressOfConstant),
    ROW(cudaErrorTextureFetchFailed),
    ROW(cudaErrorTextureNotBound),
    ROW(cudaErrorSynchronizationError),
    ROW(cudaErrorInvalidFilterSetting),
    ROW(cudaErrorInvalidNormSetting),
    ROW(cudaErrorMixedDeviceExecution),
    ROW(cudaErrorNotYetImplemented),
    ROW(cudaErrorMemoryValueTooLarge),
    ROW(cudaErrorStubLibrary),
    ROW(cudaErrorInsufficientDriver),
    ROW(cudaErrorCallRequiresNewerDriver),
    ROW(cudaErrorInvalidSurface),
    ROW(cudaErrorDuplicateVariableName),
    ROW(cudaErrorDuplicateTextureName),
    ROW(cudaErrorDuplicateSurfaceName),
    ROW(cudaErrorDevicesUnavailable),
    ROW(cudaErrorIncompatibleDriverContext),
    ROW(cudaErrorMissingConfiguration),
    ROW(cudaErrorPriorLaunchFailure),
    ROW(cudaErrorLaunchMaxDepthExceeded),
    ROW(cudaErrorLaunchFileScopedTex),
    ROW(cudaErrorLaunchFileScopedSurf),
    ROW(cudaErrorSyncDepthExceeded),
    ROW(cudaErrorLaunchPendingCountExceeded),
    ROW(cudaErrorInvalidDeviceFunction),
    ROW(cudaErrorNoDevice),
    ROW(cudaErrorInvalidDevice),
    ROW(cudaErrorDeviceNotLicensed),
    ROW(cudaErrorSoftwareValidityNotEstablished),
    ROW(cudaErrorStartupFailure),
    ROW(cudaErrorInvalidKernelImage),
    ROW(cudaErrorDeviceUninitialized),
    ROW(cudaErrorMapBufferObjectFailed),
    ROW(cudaErrorUnmapBufferObjectFailed),
    ROW(cudaErrorArrayIsMapped),
    ROW(cudaErrorAlreadyMapped),
    ROW(cudaErrorNoKernelImageForDevice),
    ROW(cudaErrorAlreadyAcquired),
    ROW(cudaErrorNotMapped),
    ROW(cudaErrorNotMappedAsArray),
    ROW(cudaErrorNotMappedAsPointer),
    ROW(cudaErrorECCUncorrectable),
    ROW(cudaErrorUnsupportedLimit),
    ROW(cudaErrorDeviceAlreadyInUse),
    ROW(cudaErrorPeerAccessUnsupported),
    ROW(cudaErrorInvalidPtx),
    ROW(cudaErrorInvalidGraphicsContext),
    ROW(cudaErrorNvlinkUncorrectable),
    ROW(cudaErrorJitCompilerNotFound),
    ROW(cudaErrorUnsupportedPtxVersion),
    ROW(cudaErrorJitCompilationDisabled),
    ROW(cudaErrorUnsupportedExecAffinity),
    ROW(cudaErrorUnsupportedDevSideSync),
    ROW(cudaErrorContained),
    ROW(cudaErrorInvalidSource),
    ROW(cudaErrorFileNotFound),
    ROW(cudaErrorSharedObjectSymbolNotFound),
    ROW(cudaErrorSharedObjectInitFailed),
    ROW(cudaErrorOperatingSystem),
    ROW(cudaErrorInvalidResourceHandle),
    ROW(cudaErrorIllegalState),
    ROW(cudaErrorLossyQuery),
    ROW(cudaErrorSymbolNotFound),
    ROW(cudaErrorNotReady),
    ROW(cudaErrorIllegalAddress),
    ROW(cudaErrorLaunchOutOfResources),
    ROW(cudaErrorLaunchTimeout),
    ROW(cudaErrorLaunchIncompatibleTexturing),
    ROW(cudaErrorPeerAccessAlreadyEnabled),
    ROW(cudaErrorPeerAccessNotEnabled),
    ROW(cudaErrorSetOnActiveProcess),
    ROW(cudaErrorContextIsDestroyed),
    ROW(cudaErrorAssert),
    ROW(cudaErrorTooManyPeers),
    ROW(cudaErrorHostMemoryAlreadyRegistered),
    ROW(cudaErrorHostMemoryNotRegistered),
    ROW(cudaErrorHardwareStackError),
    ROW(cudaErrorIllegalInstruction),
    ROW(cudaErrorMisalignedAddress),
    ROW(cudaErrorInvalidAddressSpace),
    ROW(cudaErrorInvalidPc),
    ROW(cudaErrorLaunchFailure),
    ROW(cudaErrorCooperativeLaunchTooLarge),
    ROW(cudaErrorTensorMemoryLeak),
    ROW(cudaErrorNotPermitted),
    ROW(cudaErrorNotSupported),
    ROW(cudaErrorSystemNotReady),
    ROW(cudaErrorSystemDriverMismatch),
    ROW(cudaErrorCompatNotSupportedOnDevice),
    ROW(cudaErrorMpsConnectionFailed),
    ROW(cudaErrorMpsRpcFailure),
    ROW(cudaErrorMpsServerNotReady),
    ROW(cudaErrorMpsMaxClientsReached),
    ROW(cudaErrorMpsMaxConnectionsReached),
    ROW(cudaErrorMpsClientTerminated),
    ROW(cudaErrorCdpNotSupported),
    ROW(cudaErrorCdpVersionMismatch),
    ROW(cudaErrorStreamCaptureUnsupported),
    ROW(cudaErrorStreamCaptureInvalidated),
    ROW(cudaErrorStreamCaptureMerge),
    ROW(cudaErrorStreamCaptureUnmatched),
    ROW(cudaErrorStreamCaptureUnjoined),
    ROW(cudaErrorStreamCaptureIsolation),
    ROW(cudaErrorStreamCaptureImplicit),
    ROW(cudaErrorCapturedEvent),
    ROW(cudaErrorStreamCaptureWrongThread),
    ROW(cudaErrorTimeout),
    ROW(cudaErrorGraphExecUpdateFailure),
    ROW(cudaErrorExternalDevice),
    ROW(cudaErrorInvalidClusterSize),
    ROW(cudaErrorFunctionNotLoaded),
    ROW(cudaErrorInvalidResourceType),
    ROW(cudaErrorInvalidResourceConfiguration),
    ROW(cudaErrorUnknown),
};
#undef ROW

struct Text {
  cudaError_t code;
  const char* text;
};
// What programs print most; the others are described by the words of their names.
constexpr Text kTexts[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInitializationError, "initialization error"},
    {cudaErrorNoDevice, "there is no device that CUDA can use"},
    {cudaErrorInvalidDevice, "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "no kernel image can run on the device"},
    {cudaErrorInvalidResourceHandle, "invalid resource handle"},
    {cudaErrorNotReady, "not ready yet"},
    {cudaErrorNotSupported, "operation not supported"},
    {cudaErrorNotPermitted, "operation not permitted"},
};

/// The words of "cudaErrorInvalidPitchValue": "invalid pitch value".
std::string words_of(std::string_view name) {
  constexpr std::string_view kPrefix = "cudaError";
  std::string words;
  for (const char letter : name.substr(kPrefix.size())) {
    const bool is_capital = letter >= 'A' && letter <= 'Z';
    const bool follows_small = !words.empty() && words.back() >= 'a' && words.back() <= 'z';
    if (is_capital && follows_small) {
      words += ' ';
    }
    words += is_capital ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return words;
}

class Texts {
 public:
  static Texts& instance() { return Immortal<Texts>::instance(); }
  [[nodiscard]] const char* find(cudaError_t code) const {
    const auto at = texts_.find(code);
    return at == texts_.end() ? "unrecognized error code" : at->second.c_str();
  }

 private:
  friend class Immortal<Texts>;
  Texts() {
    for (const Text& each : kTexts) {
      texts_.emplace(each.code, each.text);
    }
    for (const Row& each : kRows) {
      texts_.try_emplace(each.code, words_of(each.name));
    }
  }
  std::map<cudaError_t, std::string> texts_;
};

}  // namespace
}  // namespace plexus::cudart

CUDART_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  const auto* const row =
      std::find_if(std::begin(plexus::cudart::kRows), std::end(plexus::cudart::kRows),
                   [error](const plexus::cudart::Row& each) { return each.code == error; });
  return row == std::end(plexus::cudart::kRows) ? "unrecognized error code" : row->name;
}
CUDART_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  return plexus::cudart::Texts::instance().find(error);
}
