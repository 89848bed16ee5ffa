import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Which profiles are accepted for which sockets, and their effect on the sockets.
@Suite(.timeLimit(.minutes(40))) struct ProfileOfferTests {
    private func refusal(_ profile: WireProfile, _ pair: Pair, encrypted: Bool = false) throws -> WireError {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        do {
            _ = try client.handOver(pair.near, profile: profile, encrypted: encrypted)
        } catch let error as WireError {
            try supervisor.stop()
            return error
        }
        throw TestFailure("it was taken")
    }

    @Test func settingsOutOfRangeAreRefusedWithTheirRange() throws {
        let error = try refusal(.make(.sip(.init()), interval: .milliseconds(1)), try .tcp())
        #expect(error.code == .invalidProfile)
        #expect(error.message.contains("is not between 15.0 seconds and 7440.0 seconds"), "\(error.message)")
    }

    @Test func profileOfNoKindIsRefused() throws {
        #expect(try refusal(WireProfile(), try .tcp()).code == .invalidProfile)
    }

    @Test func streamProfileIsNotForDatagrams() throws {
        let error = try refusal(.make(.mqtt(.init())), try .udp(connected: true))
        #expect(error.code == .profileNotForThis && error.message.contains("mqtt"))
    }

    @Test func profileIsForSocketsOnly() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pipe = try Pair.pipe()
        #expect(throws: WireError.self) { _ = try client.handOver(pipe.near, profile: .sip) }
        try supervisor.stop()
    }

    @Test func kernelKeepAlivesAreForTCPOnly() throws {
        let error = try refusal(.make(.tcp(.init())), try .unix())
        #expect(error.code == .profileNotForThis && error.message.contains("tcp"))
    }

    @Test func listeningSocketHasNothingToBePinged() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone", modes: [.voip, .externalAccessory])
        let (listener, _) = try Pair.listener()
        defer { close(listener) }
        for tag in [WireSocketTag.voip, .listener, .device] {
            var message = WireHandOver()
            var socket = WireHandOver.Socket()
            (socket.tag, socket.profile) = (tag, .sip)
            message.sockets = [socket]
            let answer = try client.ask(.handOver(message), descriptors: [listener])
            guard case .handedOver(let adopted) = answer else { throw TestFailure("\(answer)") }
            #expect(adopted.adoptions[0].error.code == .profileNotForThis, "\(tag)")
        }
        #expect(try client.show("org.example.phone").socketCount == 0)
        try supervisor.stop()
    }

    /// Each is stored, and there may be thousands.
    @Test func longProfileIsRefused() throws {
        let pattern = [UInt8](repeating: 0x61, count: 3_000)
        let error = try refusal(.bytes([(pattern, pattern)]), try .tcp())
        #expect(error.code == .invalidProfile && error.message.contains("4096 bytes"))
    }

    @Test(arguments: [3_600_001, UInt64.max]) func answersHaveATimeLimit(milliseconds: UInt64) throws {
        var profile = WireProfile.lines(every: .seconds(1))
        profile.answerWithinMs = milliseconds
        let error = try refusal(profile, try .tcp())
        #expect(error.code == .invalidProfile && error.message.contains("answerWithin"))
    }

    @Test(arguments: [1, 3_600_000]) func answerMayTakeUpToAnHour(milliseconds: UInt64) throws {
        var profile = WireProfile.lines(every: .seconds(1))
        profile.answerWithinMs = milliseconds
        let scene = try OffloadScene(try .tcp(), profile)
        try scene.sleep()
        #expect(try scene.heardText(5) == "PING\n")
        if milliseconds == 1 {
            #expect(try scene.client.wake().reasons == [.unanswered])
        } else {
            try scene.pair.send("PONG\n")
            try scene.reaches("confirmed") { $0.confirmed == 1 }
        }
        try scene.stop()
    }

    @Test(arguments: [0, 1, 999, 8_000_000, UInt64.max]) func intervalsAreChecked(milliseconds: UInt64) throws
    {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        let kinds: [WireProfile.OneOf_Kind] = [
            .sip(.init()), .stun(.init()), .xmpp(.init()), .webSocket(.init()), .mqtt(.init()), .irc(.init()),
            .imap(.init()), .tcp(.init()),
        ]
        for kind in kinds {
            var profile = WireProfile.make(kind)
            profile.intervalMs = milliseconds
            do {
                _ = try client.handOver(pair.near, profile: profile)
                // Zero means the default. MQTT's may be longer than the others'.
                let isLongOfMQTT = kind == .mqtt(.init()) && milliseconds == 8_000_000
                #expect(milliseconds == 0 || isLongOfMQTT, "\(kind)")
            } catch let error as WireError {
                #expect(error.code == .invalidProfile && milliseconds != 0, "\(kind): \(error.message)")
            }
        }
        try supervisor.stop()
    }

    @Test func encryptedSocketIsOpaque() throws {
        #expect(try refusal(.sip, try .tcp(), encrypted: true).code == .opaqueSocket)
    }

    /// The kernel's keep-alives do not depend on the content.
    @Test func kernelKeepAlivesAreForEncryptedSocketsToo() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        #expect(try client.handOver(pair.near, profile: .make(.tcp(.init())), encrypted: true) != 0)
        try supervisor.stop()
    }

    @Test func validProfilesOfAPacketAreTakenBesideInvalidOnes() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.tcp()
        var message = WireHandOver()
        for profile in [WireProfile.sip, .make(.irc(.init()), interval: .milliseconds(1)), nil] {
            var socket = WireHandOver.Socket()
            socket.tag = .voip
            if let profile { socket.profile = profile }
            message.sockets.append(socket)
        }
        let answer = try client.ask(.handOver(message), descriptors: [pair.near, pair.near, pair.near])
        guard case .handedOver(let adopted) = answer else { throw TestFailure("\(answer)") }
        #expect(adopted.adoptions[0].token != 0 && adopted.adoptions[2].token != 0)
        #expect(adopted.adoptions[1].error.code == .invalidProfile)
        let sockets = try client.show("org.example.phone").sockets
        #expect(sockets.map(\.hasOffload).sorted { $0 && !$1 } == [true, false])
        try supervisor.stop()
    }

    // MARK: The kernel's keep-alives

    @Test func keepAlivesAreSetForTheSleepAndRestored() throws {
        var tcp = WireProfile.TCP()
        tcp.probeIntervalMs = 7_000
        tcp.probes = 3
        let scene = try OffloadScene(try .tcp(), .make(.tcp(tcp), interval: .seconds(90)))
        let before = try #require(TCPKeepAlive(of: scene.pair.near))
        #expect(!before.isOn)
        try scene.sleep()
        #expect(
            TCPKeepAlive(of: scene.pair.near)
                == TCPKeepAlive(
                    isOn: true, idleSeconds: 90, intervalSeconds: 7, probes: 3,
                    userTimeoutMilliseconds: 0))
        try scene.pair.send("news")
        let wake = try scene.client.wake()
        #expect(TCPKeepAlive(of: scene.pair.near) == before)
        try scene.client.finish(wake)
        try scene.stop()
    }

    // MARK: Delegated state

    private func delegated(_ scene: OffloadScene, _ tag: String) -> [WireDelegatedState] {
        var delegated = WireDelegatedState()
        delegated.token = scene.token
        var idle = WireDelegatedState.Idle()
        idle.tag = tag
        delegated.idle = idle
        return [delegated]
    }

    @Test func delegatedStateIsReturnedAsItHasBecome() throws {
        let scene = try OffloadScene(try .tcp(), .make(.imap(.init()), interval: .seconds(60)))
        try scene.client.enterBackground()
        try scene.client.ready(try scene.client.prepare(), delegating: delegated(scene, "a7"))
        try scene.observer.wait(for: OffloadScene.name, toBe: .suspended, scene.supervisor)
        try scene.pair.send("* OK Still here\r\n* 1 EXISTS\r\n")
        let wake = try scene.client.wake()
        #expect(scene.pair.received() == "* 1 EXISTS\r\n")
        #expect(wake.returned.map(\.token) == [scene.token])
        #expect(wake.returned.first?.idle.tag == "a7" && wake.returned.first?.idle.phase == .idling)
        try scene.client.finish(wake)
        try scene.stop()
    }

    private func refusal(_ scene: OffloadScene) throws -> WireError {
        try scene.client.notice { if case .error(let error) = $0 { error } else { nil } }
    }

    @Test(arguments: ["sixteen-letters!", "a b", "", "café", "a+"]) func tagsThatAreNoneAreRefused(
        tag: String
    ) throws {
        let scene = try OffloadScene(try .tcp(), .make(.imap(.init()), interval: .seconds(60)))
        try scene.client.enterBackground()
        let epoch = try scene.client.prepare()
        try scene.client.ready(epoch, delegating: delegated(scene, tag))
        #expect(try refusal(scene).code == .invalidArgument)
        try scene.client.ready(epoch, delegating: delegated(scene, "fifteen-letters"))
        try scene.observer.wait(for: OffloadScene.name, toBe: .suspended, scene.supervisor)
        try scene.stop()
    }

    @Test func delegatedStateOfTheWrongKindIsRefused() throws {
        let scene = try OffloadScene(try .tcp(), .make(.xmpp(.init())))
        try scene.client.enterBackground()
        let epoch = try scene.client.prepare()
        var counters = WireDelegatedState()
        counters.token = scene.token
        counters.stanzaCounters = WireDelegatedState.StanzaCounters()
        var lost = counters
        lost.lost = true
        for wrong in [counters, lost, delegated(scene, "a7")[0]] {
            try scene.client.ready(epoch, delegating: [wrong])
            #expect(try refusal(scene).code == .invalidArgument)
        }
        // State for an unknown socket is ignored.
        counters.token += 1
        try scene.client.ready(epoch, delegating: [counters])
        try scene.observer.wait(for: OffloadScene.name, toBe: .suspended, scene.supervisor)
        try scene.stop()
    }

    /// A renewal that the owner has begun has its time limit, too.
    @Test func anAnswerToTheOwnersRequestMayBeMissing() throws {
        let scene = try OffloadScene(
            try .tcp(), .make(.imap(.init()), interval: .seconds(60), answerWithin: .milliseconds(300)))
        var delegated = self.delegated(scene, "a7")
        delegated[0].idle.phase = .ending
        try scene.client.enterBackground()
        try scene.client.ready(try scene.client.prepare(), delegating: delegated)
        let wake = try scene.client.wake()
        #expect(wake.reasons == [.unanswered] && wake.returned.first?.idle.phase == .ending)
        #expect(try scene.counters().sent == 0)
        try scene.client.finish(wake)
        try scene.stop()
    }

    @Test func stanzasAreCounted() throws {
        var xmpp = WireProfile.XMPP()
        xmpp.streamManagement = true
        xmpp.server = "example.org"
        let scene = try OffloadScene(try .tcp(), .make(.xmpp(xmpp)))
        var delegated = WireDelegatedState()
        delegated.token = scene.token
        var counters = WireDelegatedState.StanzaCounters()
        (counters.received, counters.sent) = (41, 7)
        delegated.stanzaCounters = counters
        try scene.client.enterBackground()
        try scene.client.ready(try scene.client.prepare(), delegating: [delegated])
        try scene.observer.wait(for: OffloadScene.name, toBe: .suspended, scene.supervisor)
        try scene.pair.send(
            "<iq from='example.org' to='a@example.org/x' id='p1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>"
        )
        try scene.reaches("answered") { $0.answered == 1 }
        try scene.pair.send("<r xmlns='urn:xmpp:sm:3'/>")
        try scene.reaches("answered") { $0.answered == 2 }
        try scene.pair.send("<message><body>hello</body></message>")
        let wake = try scene.client.wake()
        #expect(wake.returned.first?.stanzaCounters.received == 42)
        #expect(wake.returned.first?.stanzaCounters.sent == 8)
        #expect(scene.pair.received() == "<message><body>hello</body></message>")
        try scene.client.finish(wake)
        try scene.stop()
    }
}
