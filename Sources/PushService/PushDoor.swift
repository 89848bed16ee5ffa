package import LinuxSystem
import Synchronization

/// How other threads leave messages.
package final class PushDoor: Sendable {
    package enum Outcome: Sendable {
        /// It is stored, with this lifetime in seconds.
        case accepted(lifetime: Int64)
        case refused(Mailboxes.Refusal)
        /// It could not be stored, or the service has ended.
        case failed
    }

    typealias Continuation = CheckedContinuation<Outcome, Never>

    private struct Core {
        /// By the last part of the address: its key, if only one sender may use it.
        var keys: [String: [UInt8]] = [:]
        var offers: [(PushOffer, Continuation)] = []
        /// The addresses are read.
        var isReady = false
        var isClosed = false
    }

    private let core = Mutex(Core())
    private let bell: EventDescriptor

    package init() throws(SystemError) { bell = try EventDescriptor() }

    var rawValue: CInt { bell.rawValue }

    package enum Look: Sendable, Equatable {
        /// There is an address, with this key; empty: all may use it.
        case key([UInt8])
        case nothing
        /// The addresses are not read yet, or the service has ended.
        case unknown
    }

    package func look(for token: String) -> Look {
        core.withLock { core in
            guard core.isReady, !core.isClosed else { return .unknown }
            return core.keys[token].map(Look.key) ?? .nothing
        }
    }

    /// Returns when the message is stored, or not.
    package func leave(_ offer: PushOffer) async -> Outcome {
        await withCheckedContinuation { continuation in
            let isOpen = core.withLock { core in
                // Those that waited for a store would be stored after their senders have given up.
                guard core.isReady, !core.isClosed else { return false }
                core.offers.append((offer, continuation))
                return true
            }
            if isOpen { ring() } else { continuation.resume(returning: .failed) }
        }
    }

    /// The service ends.
    package func close() {
        let offers = core.withLock { core in
            core.isClosed = true
            defer { core.offers = [] }
            return core.offers
        }
        for (_, continuation) in offers { continuation.resume(returning: .failed) }
        ring()
    }

    private func ring() {
        do throws(SystemError) {
            try bell.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    func takeOffers() -> ([(PushOffer, Continuation)], isClosed: Bool) {
        _ = try? bell.clear()
        return core.withLock { core in
            defer { core.offers = [] }
            return (core.offers, core.isClosed)
        }
    }

    func publish(_ keys: [String: [UInt8]]) {
        core.withLock { core in
            core.keys = keys
            core.isReady = true
        }
    }

    func publish(_ token: String, _ key: [UInt8]) { core.withLock { $0.keys[token] = key } }

    /// The service has failed; addresses are unknown until it, or another one, publishes them.
    package func withdrawAll() {
        let offers = core.withLock { core in
            core.isReady = false
            defer { core.offers = [] }
            return core.offers
        }
        for (_, continuation) in offers { continuation.resume(returning: .failed) }
    }

    func withdraw(_ token: String) { core.withLock { $0.keys[token] = nil } }
}
