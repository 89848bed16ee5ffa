import Foundation
import NightbellSupervisor
import NightbellWire

/// The usual beginning of tests of real sleep: a supervisor, a phone with one parked connection, the far end
/// of that, and an observer.
final class SupervisedClient {
    static let name = "org.example.phone"

    let supervisor: TestSupervisor
    let observer: WireClient
    let scripted: ScriptedClientProcess
    /// The far end of the phone's parked connection.
    let peer: Int32

    init(
        _ way: SupervisorConfiguration.Suspension, _ words: String = "voip",
        _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws {
        supervisor = try TestSupervisor(suspension: way, configure)
        observer = try WireClient(supervisor)
        scripted = try ScriptedClientProcess(supervisor, Self.name, words)
        peer = try scripted.park("flow")
    }

    /// Waits until the supervisor reports this state of the phone.
    func reaches(_ state: WireClientState) throws {
        try observer.wait(for: Self.name, toBe: state, supervisor)
    }

    func stop() throws { try supervisor.stop() }

    deinit { close(peer) }
}
