import LinuxSystem

/// Stops no process: clients are treated as if they slept.
final class NoSuspension: Suspender {
    private let instance: InstanceNames
    private let state: RuntimeState

    init(instance: InstanceNames, state: RuntimeState) {
        self.instance = instance
        self.state = state
    }

    var method: SuspensionMethod { .none }
    var detail: String { "clients are not stopped" }

    func isAttached(slot: UInt32) -> Bool { true }
    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError) {}
    func reattach(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> FoundState {
        wasStopped ? .stopped : .running
    }

    func quickThaw(slot: UInt32) -> QuickThaw { .none }
    func markThawed(slot: UInt32) {}
    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress { .frozen }
    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress { .frozen }
    func thaw(slot: UInt32) throws(SuspensionError) {}
    func detach(slot: UInt32) {}
    func detachAll() {}
    func thawLeftovers() -> [LeftoverReport] { Leftovers.thaw(of: instance, in: state) }
}
