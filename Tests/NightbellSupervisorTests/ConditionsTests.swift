import Descriptors
import NightbellCore
import Testing

@testable import NightbellSupervisor

@Suite("What the kernel reports, in words of the core")
struct ConditionsTests {
    private static let words: [(Readiness, Conditions)] = [
        (.readable, .readable), (.peerClosed, .peerClosed), (.hangUp, .hangUp), (.error, .error),
        (.invalid, .error), (.writable, []),
        ([.readable, .writable, .hangUp], [.readable, .hangUp]),
    ]

    @Test("Each by its name", arguments: words)
    func named(_ readiness: Readiness, _ conditions: Conditions) {
        #expect(Conditions(readiness) == conditions)
    }
}
