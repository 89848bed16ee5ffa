import Glibc
import LinuxSystem
import Nightbell
import NightbellWire
import SwiftProtobuf
import Synchronization
import Testing

@Suite("Administration")
struct AdministrationTests {
    @Test("Status, list and show are decoded")
    func looks() throws {
        let supervisor = try ScriptedSupervisor { request in
            switch request.body {
            case .status:
                var status = WireSupervisorStatus()
                status.version = "9.9"
                status.clientsByState = ["suspended": 3]
                status.nextDeadlineMs = 1_500
                return [answer(request, .supervisorStatus(status))]
            case .list:
                var first = WireClientInfo()
                first.identifier = "alice"
                var second = WireClientInfo()
                second.identifier = "bob"
                second.state = .suspended
                let third = WireClientInfo.with { $0.identifier = "carol" }
                return [
                    answer(request, .clientInfos(.with { $0.clients = [first, second] })),
                    answer(request, .clientInfos(.with { $0.clients = [third] })),
                    answer(request, .done(WireDone())),
                ]
            case .show(let show):
                var info = WireClientInfo()
                info.identifier = show.identifier
                info.launch.arguments = ["softphone"]
                return [answer(request, .clientInfo(info))]
            default: return nil
            }
        }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        var administration = try Administration(socketPath: supervisor.path)
        let status = try administration.status()
        #expect(status.version == "9.9")
        #expect(status.clientsByState == ["suspended": 3])
        #expect(status.nextDeadline == .milliseconds(1_500))
        let clients = try administration.list()
        #expect(clients.map(\.identifier) == ["alice", "bob", "carol"])
        #expect(clients.map(\.state) == [.unknown, .suspended, .unknown])
        #expect(try administration.show("carol").identifier == "carol")
        #expect(try administration.show("carol").launch?.arguments == ["softphone"])
    }

    @Test("Wake, suspend and quit name the client, each by a request of its own")
    func acts() throws {
        let supervisor = try ScriptedSupervisor { [answer($0, .done(WireDone()))] }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        var administration = try Administration(socketPath: supervisor.path)
        try administration.wake("a")
        try administration.suspend("b")
        try administration.quit("c")
        let received = supervisor.received.withLock { $0 }
        #expect(received.map(\.wakeClient.identifier) == ["a", "", ""])
        #expect(received.map(\.suspendClient.identifier) == ["", "b", ""])
        #expect(received.map(\.quitClient.identifier) == ["", "", "c"])
        #expect(Set(received.map(\.request)).count == 3)
        #expect(!received.map(\.request).contains(0))
    }

    @Test(
        "A refusal is thrown with its code, and the connection goes on",
        arguments: [
            (WireErrorCode.noSuchClient, NightbellError.Code.noSuchClient),
            (.permissionDenied, .permissionDenied), (.illegalState, .illegalState),
        ])
    func refused(wire: WireErrorCode, code: NightbellError.Code) throws {
        let supervisor = try ScriptedSupervisor { request in
            if case .status? = request.body { return [answer(request, .supervisorStatus(.init()))] }
            return [answer(request, refusal(wire, "no"))]
        }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        var administration = try Administration(socketPath: supervisor.path)
        do {
            try administration.wake("a")
            Issue.record("it was not refused")
        } catch {
            #expect(error.code == code)
        }
        _ = try administration.status()
    }

    @Test("A refusal in the middle of a list ends it")
    func refusedList() throws {
        let supervisor = try ScriptedSupervisor { request in
            [answer(request, .clientInfos(.init())), answer(request, refusal(.permissionDenied, ""))]
        }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        var administration = try Administration(socketPath: supervisor.path)
        do {
            _ = try administration.list()
            Issue.record("it was not refused")
        } catch {
            #expect(error.code == .permissionDenied)
        }
    }

    @Test("A supervisor that closes the connection, answers nothing, or answers something else")
    func badAnswers() throws {
        let cases: [(ScriptedSupervisor.Script, NightbellError.Code)] = [
            ({ _ in nil }, .connectionLost),
            ({ _ in [] }, .requestTimedOut),
            ({ [answer($0, .handedOver(.init()))] }, .malformedAnswer),
            ({ _ in [answer(.init(), refusal(.tooManyConnections, "full"))] }, .tooManyConnections),
        ]
        for (script, code) in cases {
            let supervisor = try ScriptedSupervisor(script)
            defer { #expect(throws: Never.self) { try supervisor.end() } }
            var administration = try Administration(
                socketPath: supervisor.path, requestTimeout: .milliseconds(200))
            do {
                _ = try administration.status()
                Issue.record("it was not refused: \(code)")
            } catch {
                #expect(error.code == code)
            }
        }
    }

    @Test("Unsolicited messages of the supervisor are skipped")
    func unasked() throws {
        let supervisor = try ScriptedSupervisor { request in
            [answer(.init(), .suspendCancelled(.init())), answer(request, .done(WireDone()))]
        }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        var administration = try Administration(socketPath: supervisor.path)
        try administration.wake("a")
    }

    @Test("Without a supervisor it fails")
    func withoutSupervisor() {
        do {
            _ = try Administration(socketPath: "/tmp/nightbell-nobody-\(getpid())")
            Issue.record("it connected")
        } catch {
            #expect(error.code == .cannotConnect)
            #expect(error.errorNumber == ENOENT)
        }
    }

    @Test("Events come in order, by waiting and by polling, until the supervisor ends")
    func watches() throws {
        let supervisor = try ScriptedSupervisor { request in
            let events = (1...5).map { number in
                WireWatchEvent.with {
                    $0.identifier = request.watch.identifier
                    $0.kind = "wake"
                    $0.detail = String(number)
                    $0.state = .background
                }
            }
            // One at a time, and several at once.
            let packets = [events[..<1], events[1..<2], events[2...]].map { part in
                answer(.init(), .watchEvents(.with { $0.events = Array(part) }))
            }
            return [answer(request, .done(WireDone()))] + packets
        }
        var events = try Administration(socketPath: supervisor.path).watch("alice")
        let first = try #require(try events.next())
        #expect(first.detail == "1")
        #expect(first.identifier == "alice")
        #expect(first.state == .background)
        _ = Poll.wait(events.fileDescriptor, for: .readable, timeoutMilliseconds: 5_000)
        guard case .event(let second) = try events.nextPending() else {
            Issue.record("the second event is missing")
            return
        }
        #expect(second.detail == "2")
        #expect(try events.next()?.detail == "3")
        #expect(try events.next()?.detail == "4")
        guard case .event(let last) = try events.nextPending() else {
            Issue.record("the last event is missing")
            return
        }
        #expect(last.detail == "5")
        #expect(try events.nextPending() == .nothing)
        try supervisor.end()
        #expect(try events.next() == nil)
        #expect(try events.nextPending() == .end)
    }

    @Test("A refused watch gets the reason")
    func watchRefused() throws {
        let supervisor = try ScriptedSupervisor { [answer($0, refusal(.noSuchClient, "x"))] }
        defer { #expect(throws: Never.self) { try supervisor.end() } }
        do {
            _ = try Administration(socketPath: supervisor.path).watch("x")
            Issue.record("it was not refused")
        } catch {
            #expect(error.code == .noSuchClient)
        }
    }
}
