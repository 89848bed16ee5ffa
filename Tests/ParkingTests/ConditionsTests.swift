import LinuxSystem
import NightbellCore
import NightbellParking
import Testing

@Suite("The kernel's conditions, as the core's")
struct ConditionsTests {
    private static let words: [(Readiness, Conditions)] = [
        (.readable, .readable), (.peerClosed, .peerClosed), (.hangUp, .hangUp), (.error, .error),
        (.invalid, .error), (.writable, []),
        ([.readable, .writable, .hangUp], [.readable, .hangUp]),
    ]

    @Test("Each condition is mapped", arguments: words)
    func named(_ readiness: Readiness, _ conditions: Conditions) {
        #expect(Conditions(readiness) == conditions)
    }
}
