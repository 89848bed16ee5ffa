import Nightbell
import Testing

/// Delegated state is valid, or refused at once.
@Suite(.timeLimit(.minutes(10))) struct LoanTests {
    private let counters = Loan.stanzaCounters(received: 1, sent: 2)

    private func lend(_ loan: Loan, for profile: Profile?) throws -> NightbellError.Code? {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let socket = try client.handOver(pipe.descriptor, as: .device, profile: profile)
        do {
            try client.lend(loan, for: socket)
            #expect(try client.loan(for: socket) == loan)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func theProfilesStateIsDelegated() throws {
        #expect(try lend(counters, for: .xmpp(streamManagement: true)) == nil)
        #expect(try lend(.idle(tag: "fifteen-letters", .ending), for: .imap()) == nil)
    }

    @Test func unusableStateIsRefused() throws {
        for profile in [Profile.xmpp(), .imap(), .sip()] {
            #expect(try lend(counters, for: profile) == .invalidArgument)
        }
        #expect(try lend(.idle(tag: "a1"), for: .xmpp(streamManagement: true)) == .invalidArgument)
        #expect(try lend(counters, for: nil) == .invalidToken)
    }

    @Test(arguments: ["", "sixteen-letters!", "a b", "a+b", "a\r\nb", "café", "a\"", "a\\", "\u{7F}"])
    func malformedTagsAreRefused(tag: String) throws {
        #expect(try lend(.idle(tag: tag), for: .imap()) == .invalidArgument)
    }
}
