import FoundationEssentials
import SwiftProtobuf
package import TransferModel
package import TransferWire

/// The state of a task, as it is stored: whether a waiting task runs is known only to the process.
package enum TaskState: Hashable, Sendable {
    case waiting
    case needsCredentials
    case finished(Outcome)
}

/// The end of a task.
package struct Outcome: Hashable, Sendable {
    /// nil: the file is whole.
    package var failure: TransferFailure?
    /// Of HTTP; 0: there was no response.
    package var status: Int
    /// Of the file.
    package var bytes: Int64
    package var digest: [UInt8]?

    package init(failure: TransferFailure? = nil, status: Int = 0, bytes: Int64 = 0, digest: [UInt8]? = nil) {
        self.failure = failure
        self.status = status
        self.bytes = bytes
        self.digest = digest
    }
}

// MARK: On the wire

extension WireTransferOutcome {
    package init(_ outcome: Outcome) {
        self.init()
        failure = WireTransferFailureKind(outcome.failure)
        if case .refused(let text) = outcome.failure { reason = text }
        status = UInt32(clamping: outcome.status)
        bytes = UInt64(clamping: outcome.bytes)
        if let digest = outcome.digest { self.digest = Data(digest) }
    }
}

extension Outcome {
    package init(_ wire: WireTransferOutcome) {
        self.init(
            failure: wire.failure.failure(status: Int(wire.status), reason: wire.reason),
            status: Int(wire.status), bytes: Int64(clamping: wire.bytes),
            digest: wire.digest.isEmpty ? nil : Array(wire.digest))
    }
}

extension WireTransferFailureKind {
    package init(_ failure: TransferFailure?) {
        self =
            switch failure {
            case nil: .none
            case .status: .status
            case .encoded: .encoded
            case .digest: .digest
            case .tooLarge: .tooLarge
            case .timedOut: .timedOut
            case .interrupted: .interrupted
            case .refused: .refused
            case .inconsistent: .inconsistent
            case .cancelled: .cancelled
            case .storage: .storage
            }
    }

    func failure(status: Int, reason: String) -> TransferFailure? {
        switch self {
        case .none: nil
        case .status: .status(status)
        case .encoded: .encoded
        case .digest: .digest
        case .tooLarge: .tooLarge
        case .timedOut: .timedOut
        case .interrupted: .interrupted
        case .refused: .refused(reason)
        case .inconsistent: .inconsistent
        case .cancelled: .cancelled
        case .storage, .UNRECOGNIZED: .storage
        }
    }
}

extension WireTransferTask {
    package init(_ task: TransferTask) {
        self.init()
        kind =
            switch task.kind {
            case .download: .download
            case .upload: .upload
            }
        url = task.url.text
        method = task.method
        fields = task.fields.map { field in
            WireTransferField.with {
                $0.name = field.name
                $0.value = field.value
            }
        }
        proxy = task.proxy ?? ""
        wantsDigest = task.wantsDigest
        if let digest = task.expectedDigest { expectedDigest = Data(digest) }
        isDiscretionary = task.isDiscretionary
    }
}

extension TransferTask {
    /// nil: of another kind, or the address is none.
    package init?(_ wire: WireTransferTask) {
        guard let url = TransferURL(wire.url) else { return nil }
        let kind: Kind
        switch wire.kind {
        case .download: kind = .download
        case .upload: kind = .upload
        case .UNRECOGNIZED: return nil
        }
        self.init(
            kind: kind, url: url, method: wire.method.isEmpty ? nil : wire.method,
            fields: wire.fields.map { HeaderField($0.name, $0.value) },
            proxy: wire.proxy.isEmpty ? nil : wire.proxy, wantsDigest: wire.wantsDigest,
            expectedDigest: wire.expectedDigest.isEmpty ? nil : Array(wire.expectedDigest),
            isDiscretionary: wire.isDiscretionary)
    }
}
