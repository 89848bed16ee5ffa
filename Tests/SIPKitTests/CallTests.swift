import SIPKit
import Testing

@Suite struct CallTests {
    private func requests(_ method: SIPMethod, in messages: [SIPMessage]) -> [SIPMessage] {
        messages.filter { $0.method == method }
    }

    @Test(arguments: SIPTransport.allCases)
    func registersWithDigestAndRefreshesWithoutAChallenge(transport: SIPTransport) throws {
        var network = Network(transport, users: ["alice"])
        network.register("alice")
        network.run(for: .seconds(1))
        #expect(network.phoneEvents["alice"] == [.registered(.seconds(60))])
        #expect(network.server.registrar.registeredUsers(at: network.now) == 1)
        network.register("alice")
        network.run(for: .seconds(1))
        // Request, request with credentials, refresh with the same nonce and the next count.
        let registers = requests(.register, in: network.sent)
        #expect(registers.compactMap(\.cSeq?.number) == [1, 2, 3])
        #expect(Set(registers.compactMap(\.callID)).count == 1)
        #expect(registers[2].headers[.authorization]?.contains("nc=00000002") == true)
        network.register("alice", removing: true)
        network.run(for: .seconds(1))
        #expect(network.phoneEvents["alice"]?.last == .registered(.zero))
        #expect(network.server.registrar.registeredUsers(at: network.now) == 0)
    }

    @Test func aRemovalFollowsARegistrationThatIsUnderWay() {
        var network = Network(.tcp, users: ["alice"])
        network.register("alice")
        network.register("alice", removing: true)
        network.run(for: .seconds(1))
        #expect(network.phoneEvents["alice"] == [.registered(.seconds(60)), .registered(.zero)])
        #expect(network.server.registrar.registeredUsers(at: network.now) == 0)
    }

    @Test func aBindingEndsByItself() {
        var network = Network(.udp, users: ["alice"])
        network.register("alice")
        network.run(for: .seconds(61))
        #expect(network.server.registrar.registeredUsers(at: network.now) == 0)
        let callID = network.call("alice")
        network.run(for: .seconds(1))
        #expect(network.callerEvents == [.failed(callID, .refused(480))])
    }

    @Test func anIntervalTooBriefIsRaised() {
        var network = Network(.udp, users: ["alice"], expires: .seconds(1))
        network.register("alice")
        network.run(for: .seconds(1))
        #expect(network.phoneEvents["alice"] == [.registered(.seconds(2))])
    }

    @Test func aRegistrarThatIsSilentIsGivenUp() {
        var network = Network(.udp, users: ["alice"])
        network.lossPercent = 100
        network.register("alice")
        network.run(for: .seconds(33))
        #expect(network.phoneEvents["alice"] == [.registrationFailed(.timedOut)])
        // 500 ms doubling up to 4 s, for 32 s (RFC 3261 §17.1.2.2): once, and ten times again.
        #expect(requests(.register, in: network.sent).count == 11)
    }

    @Test(arguments: SIPTransport.allCases)
    func aCallIsAnsweredAndEnded(transport: SIPTransport) throws {
        var network = Network(transport, users: ["alice"])
        network.register("alice")
        network.run(for: .seconds(1))
        let callID = network.call("alice")
        network.run(for: .seconds(2))
        #expect(network.callerEvents == [.ringing(callID), .answered(callID), .ended(callID)])
        #expect(
            network.phoneEvents["alice"]
                == [
                    .registered(.seconds(60)), .callStarted(callID), .callAnswered(callID),
                    .callEnded(callID, .remote),
                ])
        #expect(network.phones["alice"]?.callCount == 0)
        #expect(network.caller.callCount == 0)
        // Each request went two hops, and none was repeated.
        for method in [SIPMethod.invite, .ack, .bye] {
            #expect(requests(method, in: network.sent).count == 2)
        }
    }

    /// A BYE can be lost with its sender.
    @Test func aCallEndsWhenNothingOfTheOtherSideIsHeardAnyMore() {
        var network = Network(.udp, users: ["alice"], expires: .seconds(3_600))
        network.register("alice")
        network.run(for: .seconds(1))
        let callID = network.call("alice", talkFor: .seconds(36_000))
        network.run(for: .seconds(1_800))
        // It was asked, has answered, and talks on.
        #expect(network.phoneEvents["alice"]?.last == .callAnswered(callID))
        // Each question goes two hops: five or six questions, by the delays on their way.
        #expect([10, 12].contains(requests(.options, in: network.sent).count))
        network.lossPercent = 100
        network.run(for: .seconds(335))
        #expect(network.phoneEvents["alice"]?.last == .callEnded(callID, .lost))
        #expect(network.phones["alice"]?.callCount == 0)
    }

    @Test func aCallEndsWhenTheOtherSideKnowsNothingOfIt() throws {
        var phone = UserAgent(
            UserAgent.Configuration(user: "alice", password: "", domain: "example.test"),
            endpoint: SIPEndpoint(user: "alice", transport: .tcp, host: "192.0.2.3", port: 6000))
        let endpoint = SIPEndpoint(user: "caller", transport: .tcp, host: "192.0.2.2", port: 5062)
        var caller = Caller(endpoint, domain: "example.test")
        let start = ContinuousClock.now
        let (callID, actions) = caller.call("alice", talkFor: .seconds(3_600), at: start)
        guard case .send(let invite) = actions.first else { return #expect(Bool(false)) }
        for case .send(let response) in phone.receive(invite, at: start) {
            for case .send(let ack) in caller.receive(response, at: start) {
                _ = phone.receive(ack, at: start)
            }
        }
        let due = start + .seconds(300)
        #expect(phone.advance(to: due - .nanoseconds(1)).isEmpty && phone.nextDeadline == due)
        guard case .send(let question) = phone.advance(to: due).first else { return #expect(Bool(false)) }
        #expect(question.method == .options)
        // Another process has taken its place.
        var stranger = Caller(endpoint, domain: "example.test")
        guard case .send(let answer) = stranger.receive(question, at: due).first else {
            return #expect(Bool(false))
        }
        #expect(answer.status == 481)
        #expect(phone.receive(answer, at: due).contains(.callEnded(callID, .lost)))
        #expect(phone.callCount == 0)
    }

    /// A server on the way answers for another side that is gone, or has a bad moment.
    @Test(arguments: [430, 404, 480, 503])
    func aCallEndsWhenTwoAnswersInARowAreNotOfTheOtherSide(status: Int) throws {
        var phone = UserAgent(
            UserAgent.Configuration(user: "alice", password: "", domain: "example.test"),
            endpoint: SIPEndpoint(user: "alice", transport: .tcp, host: "192.0.2.3", port: 6000))
        var caller = Caller(
            SIPEndpoint(user: "caller", transport: .tcp, host: "192.0.2.2", port: 5062),
            domain: "example.test")
        var now = ContinuousClock.now
        let (callID, actions) = caller.call("alice", talkFor: .seconds(36_000), at: now)
        guard case .send(let invite) = actions.first else { return #expect(Bool(false)) }
        for case .send(let response) in phone.receive(invite, at: now) {
            for case .send(let ack) in caller.receive(response, at: now) { _ = phone.receive(ack, at: now) }
        }
        for answer in [status, 405, status, 200, status, status] {
            #expect(phone.callCount == 1)
            now += .seconds(300)
            guard case .send(let question) = phone.advance(to: now).first else {
                return #expect(Bool(false))
            }
            #expect(question.method == .options)
            let told = phone.receive(question.response(answer, "Answer"), at: now)
            #expect(told.contains(.callEnded(callID, .lost)) == (phone.callCount == 0))
        }
        #expect(phone.callCount == 0)
    }

    @Test func aCallThatIsGivenUpIsCancelled() {
        var network = Network(.udp, users: ["alice"], answerAfter: .seconds(60))
        network.register("alice")
        network.run(for: .seconds(1))
        let callID = network.call("alice")
        network.run(for: .seconds(22))
        #expect(network.callerEvents == [.ringing(callID), .failed(callID, .noAnswer)])
        #expect(network.phoneEvents["alice"]?.last == .callEnded(callID, .cancelled))
        #expect(network.sent.contains { $0.status == 487 })
    }

    @Test func aPhoneHangsUpByItself() throws {
        var phone = UserAgent(
            UserAgent.Configuration(user: "alice", password: "", domain: "example.test"),
            endpoint: SIPEndpoint(user: "alice", transport: .tcp, host: "192.0.2.3", port: 6000))
        var caller = Caller(
            SIPEndpoint(user: "caller", transport: .tcp, host: "192.0.2.2", port: 5062),
            domain: "example.test")
        let now = ContinuousClock.now
        let (callID, actions) = caller.call("alice", talkFor: .seconds(60), at: now)
        guard case .send(let invite) = actions.first else { return #expect(Bool(false)) }
        for case .send(let response) in phone.receive(invite, at: now) {
            for case .send(let ack) in caller.receive(response, at: now) { _ = phone.receive(ack, at: now) }
        }
        guard case .send(let bye) = phone.hangUp(at: now).first else { return #expect(Bool(false)) }
        let last = caller.receive(bye, at: now)
        #expect(last.last == .ended(callID))
        #expect(phone.callCount == 0)
    }

    @Test func anUnacknowledgedAnswerEndsTheCall() throws {
        var phone = UserAgent(
            UserAgent.Configuration(user: "alice", password: "", domain: "example.test"),
            endpoint: SIPEndpoint(user: "alice", transport: .udp, host: "192.0.2.3", port: 6000))
        let start = ContinuousClock.now
        var caller = Caller(
            SIPEndpoint(user: "caller", transport: .udp, host: "192.0.2.2", port: 5062),
            domain: "example.test")
        let (callID, actions) = caller.call("alice", talkFor: .zero, at: start)
        guard case .send(let invite) = actions.first else { return #expect(Bool(false)) }
        _ = phone.receive(invite, at: start)
        var answers = 0
        var last: [UserAgent.Action] = []
        while let deadline = phone.nextDeadline, phone.callCount > 0 {
            last = phone.advance(to: deadline)
            answers += last.count { if case .send(let message) = $0 { message.status == 200 } else { false } }
        }
        #expect(answers == 10)
        #expect(last.contains(.callEnded(callID, .unacknowledged)))
        #expect(last.contains { if case .send(let message) = $0 { message.method == .bye } else { false } })
    }

    @Test func oddRequestsGetTheirAnswers() throws {
        var network = Network(.tcp, users: ["alice"])
        func request(_ method: SIPMethod, _ extra: (SIPHeaderName, String)...) -> SIPMessage {
            var message = SIPMessage(.request(method: method, uri: "sip:alice@192.0.2.3"))
            message.headers = [
                .via: "SIP/2.0/TCP 192.0.2.1;branch=z9hG4bK\(method.rawValue)\(extra.count)",
                .from: "<sip:x@y>;tag=1",
                .to: "<sip:alice@example.test>", .callID: "odd", .cSeq: "1 \(method.rawValue)",
            ]
            for (name, value) in extra { message.headers.append(name, value) }
            return message
        }
        let cases: [(SIPMessage, Int)] = [
            (request(.options), 200), (request("SUBSCRIBE"), 405), (request(.bye), 481),
            (request(.cancel), 481),
            (request(.invite, ("Require", "100rel")), 420), (request(.invite), 400),
        ]
        for (message, status) in cases {
            let before = network.sent.count
            network.deliver(message, to: "alice")
            #expect(network.sent[before...].compactMap(\.status) == [status], "\(message.startLine)")
        }
        #expect(network.phones["alice"]?.callCount == 0)
    }

    @Test func theProxyRefusesInvalidRequests() {
        var network = Network(.tcp, users: ["alice"])
        func status(_ uri: String, _ change: (inout SIPMessage) -> Void = { _ in }) -> Int? {
            var message = SIPMessage(.request(method: .options, uri: uri))
            message.headers = [
                .via: "SIP/2.0/TCP 192.0.2.3:6000;branch=z9hG4bK\(network.sent.count)",
                .from: "<sip:x@y>;tag=1",
                .to: "<\(uri)>", .callID: "odd", .cSeq: "1 OPTIONS",
            ]
            change(&message)
            let before = network.sent.count
            network.inject(message, from: "alice")
            network.run(for: .seconds(1))
            return network.sent[before...].compactMap(\.status).first
        }
        #expect(status("sip:example.test") == 200)
        #expect(status("sip:nobody@example.test") == 404)
        #expect(status("sip:alice@example.test") == 480)
        #expect(status("sip:alice@elsewhere.test") == 403)
        #expect(status("tel:1") == 416)
        #expect(status("sip:alice@example.test") { $0.headers[.maxForwards] = "0" } == 483)
        #expect(status("sip:x@y") { $0.headers[.route] = "<sip:10-ff@192.0.2.1:5060;lr>" } == 430)
        #expect(status("sip:x@y") { $0.headers[.route] = "<sip:1-ff@192.0.2.1:5060;lr>" } == 403)
    }

    /// The network loses, doubles and reorders messages: no call is lost, and none is answered twice.
    @Test(arguments: [UInt64](1...40))
    func callsSurviveABadNetwork(seed: UInt64) {
        let users = ["alice", "bob", "carol"]
        var network = Network(
            .udp, users: users, expires: .seconds(3600), random: SeededGenerator(state: seed))
        network.lossPercent = 10
        network.doublingPercent = 15
        for user in users { network.register(user) }
        network.run(for: .seconds(40))
        var callIDs: [String] = []
        for round in 0..<12 {
            callIDs.append(network.call(users[round % users.count]))
            network.run(for: .milliseconds(Int64.random(in: 1...400, using: &network.random)))
        }
        network.run(for: .seconds(120))
        for callID in callIDs {
            let answered = network.callerEvents.count { $0 == .answered(callID) }
            #expect(answered == 1, "seed \(seed)")
            #expect(network.callerEvents.contains(.ended(callID)), "seed \(seed)")
            let atPhones = network.phoneEvents.values.joined().count { $0 == .callAnswered(callID) }
            #expect(atPhones == 1, "seed \(seed)")
        }
        #expect(
            network.phones.values.allSatisfy { $0.callCount == 0 && $0.nextDeadline == nil }, "seed \(seed)")
        #expect(network.caller.callCount == 0 && network.caller.nextDeadline == nil, "seed \(seed)")
    }
}
