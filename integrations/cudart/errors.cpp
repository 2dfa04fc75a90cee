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
#define PLEXUS_ROW(code) \
  Row { code, #code }
constexpr Row kRows[] = {
    PLEXUS_ROW(cudaSuccess),
    PLEXUS_ROW(cudaErrorInvalidValue),
    PLEXUS_ROW(cudaErrorMemoryAllocation),
    PLEXUS_ROW(cudaErrorInitializationError),
    PLEXUS_ROW(cudaErrorCudartUnloading),
    PLEXUS_ROW(cudaErrorProfilerDisabled),
    PLEXUS_ROW(cudaErrorProfilerNotInitialized),
    PLEXUS_ROW(cudaErrorProfilerAlreadyStarted),
    PLEXUS_ROW(cudaErrorProfilerAlreadyStopped),
    PLEXUS_ROW(cudaErrorInvalidConfiguration),
    PLEXUS_ROW(cudaErrorInvalidPitchValue),
    PLEXUS_ROW(cudaErrorInvalidSymbol),
    PLEXUS_ROW(cudaErrorInvalidHostPointer),
    PLEXUS_ROW(cudaErrorInvalidDevicePointer),
    PLEXUS_ROW(cudaErrorInvalidTexture),
    PLEXUS_ROW(cudaErrorInvalidTextureBinding),
    PLEXUS_ROW(cudaErrorInvalidChannelDescriptor),
    PLEXUS_ROW(cudaErrorInvalidMemcpyDirection),
    PLEXUS_ROW(cudaErrorAddressOfConstant),
    PLEXUS_ROW(cudaErrorTextureFetchFailed),
    PLEXUS_ROW(cudaErrorTextureNotBound),
    PLEXUS_ROW(cudaErrorSynchronizationError),
    PLEXUS_ROW(cudaErrorInvalidFilterSetting),
    PLEXUS_ROW(cudaErrorInvalidNormSetting),
    PLEXUS_ROW(cudaErrorMixedDeviceExecution),
    PLEXUS_ROW(cudaErrorNotYetImplemented),
    PLEXUS_ROW(cudaErrorMemoryValueTooLarge),
    PLEXUS_ROW(cudaErrorStubLibrary),
    PLEXUS_ROW(cudaErrorInsufficientDriver),
    PLEXUS_ROW(cudaErrorCallRequiresNewerDriver),
    PLEXUS_ROW(cudaErrorInvalidSurface),
    PLEXUS_ROW(cudaErrorDuplicateVariableName),
    PLEXUS_ROW(cudaErrorDuplicateTextureName),
    PLEXUS_ROW(cudaErrorDuplicateSurfaceName),
    PLEXUS_ROW(cudaErrorDevicesUnavailable),
    PLEXUS_ROW(cudaErrorIncompatibleDriverContext),
    PLEXUS_ROW(cudaErrorMissingConfiguration),
    PLEXUS_ROW(cudaErrorPriorLaunchFailure),
    PLEXUS_ROW(cudaErrorLaunchMaxDepthExceeded),
    PLEXUS_ROW(cudaErrorLaunchFileScopedTex),
    PLEXUS_ROW(cudaErrorLaunchFileScopedSurf),
    PLEXUS_ROW(cudaErrorSyncDepthExceeded),
    PLEXUS_ROW(cudaErrorLaunchPendingCountExceeded),
    PLEXUS_ROW(cudaErrorInvalidDeviceFunction),
    PLEXUS_ROW(cudaErrorNoDevice),
    PLEXUS_ROW(cudaErrorInvalidDevice),
    PLEXUS_ROW(cudaErrorDeviceNotLicensed),
    PLEXUS_ROW(cudaErrorSoftwareValidityNotEstablished),
    PLEXUS_ROW(cudaErrorStartupFailure),
    PLEXUS_ROW(cudaErrorInvalidKernelImage),
    PLEXUS_ROW(cudaErrorDeviceUninitialized),
    PLEXUS_ROW(cudaErrorMapBufferObjectFailed),
    PLEXUS_ROW(cudaErrorUnmapBufferObjectFailed),
    PLEXUS_ROW(cudaErrorArrayIsMapped),
    PLEXUS_ROW(cudaErrorAlreadyMapped),
    PLEXUS_ROW(cudaErrorNoKernelImageForDevice),
    PLEXUS_ROW(cudaErrorAlreadyAcquired),
    PLEXUS_ROW(cudaErrorNotMapped),
    PLEXUS_ROW(cudaErrorNotMappedAsArray),
    PLEXUS_ROW(cudaErrorNotMappedAsPointer),
    PLEXUS_ROW(cudaErrorECCUncorrectable),
    PLEXUS_ROW(cudaErrorUnsupportedLimit),
    PLEXUS_ROW(cudaErrorDeviceAlreadyInUse),
    PLEXUS_ROW(cudaErrorPeerAccessUnsupported),
    PLEXUS_ROW(cudaErrorInvalidPtx),
    PLEXUS_ROW(cudaErrorInvalidGraphicsContext),
    PLEXUS_ROW(cudaErrorNvlinkUncorrectable),
    PLEXUS_ROW(cudaErrorJitCompilerNotFound),
    PLEXUS_ROW(cudaErrorUnsupportedPtxVersion),
    PLEXUS_ROW(cudaErrorJitCompilationDisabled),
    PLEXUS_ROW(cudaErrorUnsupportedExecAffinity),
    PLEXUS_ROW(cudaErrorUnsupportedDevSideSync),
    PLEXUS_ROW(cudaErrorContained),
    PLEXUS_ROW(cudaErrorInvalidSource),
    PLEXUS_ROW(cudaErrorFileNotFound),
    PLEXUS_ROW(cudaErrorSharedObjectSymbolNotFound),
    PLEXUS_ROW(cudaErrorSharedObjectInitFailed),
    PLEXUS_ROW(cudaErrorOperatingSystem),
    PLEXUS_ROW(cudaErrorInvalidResourceHandle),
    PLEXUS_ROW(cudaErrorIllegalState),
    PLEXUS_ROW(cudaErrorLossyQuery),
    PLEXUS_ROW(cudaErrorSymbolNotFound),
    PLEXUS_ROW(cudaErrorNotReady),
    PLEXUS_ROW(cudaErrorIllegalAddress),
    PLEXUS_ROW(cudaErrorLaunchOutOfResources),
    PLEXUS_ROW(cudaErrorLaunchTimeout),
    PLEXUS_ROW(cudaErrorLaunchIncompatibleTexturing),
    PLEXUS_ROW(cudaErrorPeerAccessAlreadyEnabled),
    PLEXUS_ROW(cudaErrorPeerAccessNotEnabled),
    PLEXUS_ROW(cudaErrorSetOnActiveProcess),
    PLEXUS_ROW(cudaErrorContextIsDestroyed),
    PLEXUS_ROW(cudaErrorAssert),
    PLEXUS_ROW(cudaErrorTooManyPeers),
    PLEXUS_ROW(cudaErrorHostMemoryAlreadyRegistered),
    PLEXUS_ROW(cudaErrorHostMemoryNotRegistered),
    PLEXUS_ROW(cudaErrorHardwareStackError),
    PLEXUS_ROW(cudaErrorIllegalInstruction),
    PLEXUS_ROW(cudaErrorMisalignedAddress),
    PLEXUS_ROW(cudaErrorInvalidAddressSpace),
    PLEXUS_ROW(cudaErrorInvalidPc),
    PLEXUS_ROW(cudaErrorLaunchFailure),
    PLEXUS_ROW(cudaErrorCooperativeLaunchTooLarge),
    PLEXUS_ROW(cudaErrorTensorMemoryLeak),
    PLEXUS_ROW(cudaErrorNotPermitted),
    PLEXUS_ROW(cudaErrorNotSupported),
    PLEXUS_ROW(cudaErrorSystemNotReady),
    PLEXUS_ROW(cudaErrorSystemDriverMismatch),
    PLEXUS_ROW(cudaErrorCompatNotSupportedOnDevice),
    PLEXUS_ROW(cudaErrorMpsConnectionFailed),
    PLEXUS_ROW(cudaErrorMpsRpcFailure),
    PLEXUS_ROW(cudaErrorMpsServerNotReady),
    PLEXUS_ROW(cudaErrorMpsMaxClientsReached),
    PLEXUS_ROW(cudaErrorMpsMaxConnectionsReached),
    PLEXUS_ROW(cudaErrorMpsClientTerminated),
    PLEXUS_ROW(cudaErrorCdpNotSupported),
    PLEXUS_ROW(cudaErrorCdpVersionMismatch),
    PLEXUS_ROW(cudaErrorStreamCaptureUnsupported),
    PLEXUS_ROW(cudaErrorStreamCaptureInvalidated),
    PLEXUS_ROW(cudaErrorStreamCaptureMerge),
    PLEXUS_ROW(cudaErrorStreamCaptureUnmatched),
    PLEXUS_ROW(cudaErrorStreamCaptureUnjoined),
    PLEXUS_ROW(cudaErrorStreamCaptureIsolation),
    PLEXUS_ROW(cudaErrorStreamCaptureImplicit),
    PLEXUS_ROW(cudaErrorCapturedEvent),
    PLEXUS_ROW(cudaErrorStreamCaptureWrongThread),
    PLEXUS_ROW(cudaErrorTimeout),
    PLEXUS_ROW(cudaErrorGraphExecUpdateFailure),
    PLEXUS_ROW(cudaErrorExternalDevice),
    PLEXUS_ROW(cudaErrorInvalidClusterSize),
    PLEXUS_ROW(cudaErrorFunctionNotLoaded),
    PLEXUS_ROW(cudaErrorInvalidResourceType),
    PLEXUS_ROW(cudaErrorInvalidResourceConfiguration),
    PLEXUS_ROW(cudaErrorUnknown),
};
#undef PLEXUS_ROW

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

PLEXUS_CUDART const char* cudaGetErrorName(cudaError_t error) {
  const auto* const row =
      std::find_if(std::begin(plexus::cudart::kRows), std::end(plexus::cudart::kRows),
                   [error](const plexus::cudart::Row& each) { return each.code == error; });
  return row == std::end(plexus::cudart::kRows) ? "unrecognized error code" : row->name;
}
PLEXUS_CUDART const char* cudaGetErrorString(cudaError_t error) {
  return plexus::cudart::Texts::instance().find(error);
}
