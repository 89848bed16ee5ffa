import Nightbell
import Testing

/// Delegated state is valid, or refused at once.
@Suite(.timeLimit(.minutes(40))) struct DelegatedStateTests {
    private let counters = DelegatedState.stanzaCounters(received: 1, sent: 2)

    private func delegate(_ delegatedState: DelegatedState, for profile: Profile?) throws -> NightbellError
        .Code?
    {
        let supervisor = try FakeSupervisor()
        let client = try Client(of: supervisor)
        let pipe = try Pipe()
        let socket = try client.handOver(pipe.descriptor, as: .device, profile: profile)
        do {
            try client.delegate(delegatedState, for: socket)
            #expect(try client.delegatedState(for: socket) == delegatedState)
            return nil
        } catch {
            return error.code
        }
    }

    @Test func theProfilesStateIsDelegated() throws {
        #expect(try delegate(counters, for: .xmpp(streamManagement: true)) == nil)
        #expect(try delegate(.idle(tag: "fifteen-letters", .ending), for: .imap()) == nil)
    }

    @Test func unusableStateIsRefused() throws {
        for profile in [Profile.xmpp(), .imap(), .sip()] {
            #expect(try delegate(counters, for: profile) == .invalidArgument)
        }
        #expect(try delegate(.idle(tag: "a1"), for: .xmpp(streamManagement: true)) == .invalidArgument)
        #expect(try delegate(counters, for: nil) == .invalidToken)
    }

    @Test(arguments: ["", "sixteen-letters!", "a b", "a+b", "a\r\nb", "café", "a\"", "a\\", "\u{7F}"])
    func malformedTagsAreRefused(tag: String) throws {
        #expect(try delegate(.idle(tag: tag), for: .imap()) == .invalidArgument)
    }
}
