import NightbellSupervisor
import Testing

/// Hosts that do what they should not.
@Suite(.timeLimit(.minutes(15))) struct BrokenTests {
    private func code(_ body: () throws -> Void) -> EmbeddedError.Code? {
        #expect(throws: EmbeddedError.self) { try body() }?.code
    }

    @Test func aConfigurationThatMakesNoSenseIsRefused() throws {
        func isRefused(_ adjust: (inout EmbeddedSupervisor.Configuration) -> Void) -> Bool {
            code { _ = try Hosted(adjust) } == .configuration
        }
        for tolerance in [-0.1, 1.1, .nan, .infinity] {
            #expect(isRefused { $0.keepAliveTolerance = tolerance })
        }
        #expect(isRefused { $0.lead = .nanoseconds(-1) })
        #expect(isRefused { $0.stateLimit = -1 } && isRefused { $0.stateLimit = .max })
        #expect(isRefused { $0.socketLimit = 0 } && isRefused { $0.socketLimit = -1 })
        #expect(isRefused { $0.noiseBurst = 0 } && isRefused { $0.noiseBurst = 65_536 })
        #expect(isRefused { $0.noiseInterval = .zero } && isRefused { $0.partialTimeout = .seconds(-1) })
        for tolerance in [0, 1.0] {
            _ = try Hosted { configuration in
                configuration.keepAliveTolerance = tolerance
                configuration.lead = .zero
                configuration.stateLimit = 0
                configuration.socketLimit = 1
                configuration.noiseBurst = 1
            }
        }
    }
}
