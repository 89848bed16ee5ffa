import CLinux
import LinuxSystem

/// The freezer, with signals as the fallback for clients that it cannot freeze: a supervisor without
/// privileges may make cgroups but move only processes that already live in its part of the hierarchy.
final class PreferredSuspender: Suspender {
    private let preferred: CgroupFreezer
    private let fallback: StopSignal
    private var inFallback: Set<UInt32> = []

    init(_ preferred: CgroupFreezer, else fallback: StopSignal) {
        self.preferred = preferred
        self.fallback = fallback
    }

    var method: SuspensionMethod { preferred.method }

    var detail: String {
        inFallback.isEmpty
            ? preferred.detail : "\(preferred.detail); \(fallback.detail) for \(inFallback.count) clients"
    }

    func method(slot: UInt32) -> SuspensionMethod { chosen(slot).method }

    func isAttached(slot: UInt32) -> Bool { chosen(slot).isAttached(slot: slot) }

    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError) {
        if inFallback.contains(slot) { return try fallback.attach(slot: slot, process: process) }
        do {
            try preferred.attach(slot: slot, process: process)
        } catch {
            switch error.code {
            // With a spare descriptor it would have worked.
            case .processGone, .notAttached, .outOfDescriptors: throw error
            case .freezerMissing, .notPermitted, .processMoved, .systemError:
                try fallback.attach(slot: slot, process: process)
                inFallback.insert(slot)
            }
        }
    }

    func include(slot: UInt32, descendant pid: pid_t) throws(SuspensionError) {
        try chosen(slot).include(slot: slot, descendant: pid)
    }

    func reattach(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> FoundState {
        if fallback.hasStopped(process) {
            inFallback.insert(slot)
            return try fallback.reattach(slot: slot, process: process, wasStopped: wasStopped)
        }
        return try preferred.reattach(slot: slot, process: process, wasStopped: wasStopped)
    }

    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        try chosen(slot).freeze(slot: slot)
    }

    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        try chosen(slot).progress(slot: slot)
    }

    func thaw(slot: UInt32) throws(SuspensionError) {
        try chosen(slot).thaw(slot: slot)
    }

    func quickThaw(slot: UInt32) -> QuickThaw { chosen(slot).quickThaw(slot: slot) }

    func markThawed(slot: UInt32) { chosen(slot).markThawed(slot: slot) }

    func finishDeferredWork() { fallback.finishDeferredWork() }

    func detach(slot: UInt32) {
        chosen(slot).detach(slot: slot)
        inFallback.remove(slot)
    }

    func detachAll() {
        fallback.detachAll()
        preferred.detachAll()
        inFallback = []
    }

    func thawLeftovers() -> [LeftoverReport] { preferred.thawLeftovers() }

    private func chosen(_ slot: UInt32) -> any Suspender {
        // Usually empty: a lookup in an empty set would still compute a hash.
        !inFallback.isEmpty && inFallback.contains(slot) ? fallback : preferred
    }
}
