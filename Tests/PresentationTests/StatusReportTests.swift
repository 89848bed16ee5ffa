import Nightbell
import NightbellWire
import Presentation
import StatusReports
import SwiftProtobuf
import Testing

@Suite("Reports of clients and events")
struct ReportTests {
    @Test("A list names every client, its state and how it sleeps")
    func list() {
        let lines = Report.list(
            [client(identifier: "org.example.alice"), client(identifier: "b")], width: nil)
        #expect(lines.count == 3)
        #expect(lines[0].hasPrefix("CLIENT"))
        for part in [
            "org.example.alice", "4711", "suspended", "12m 5s", "80.0%", "in 9m 10s", "file locks held",
        ] {
            #expect(lines[1].contains(part), "\(part) in \(lines[1])")
        }
    }

    @Test("A list fits 80 columns with the necessary columns, and warnings are below their client")
    func narrowList() {
        let lines = Report.list(
            [client(identifier: "org.example.softphone.of.alice"), client(identifier: "b")], width: 80)
        #expect(lines.allSatisfy { $0.count <= 80 })
        #expect(lines.count == 5)
        for title in ["CLIENT", "PID", "STATE", "FOR", "WAKES", "ASLEEP", "KEEP-ALIVE"] {
            #expect(lines[0].contains(title), "\(title) in \(lines[0])")
        }
        #expect(!lines[0].contains("AVOIDED"), "it has no information")
        #expect(lines[1].hasPrefix("org.") && lines[1].contains("alice ") && lines[1].contains("in 9m 10s"))
        #expect(lines[2] == "  ! file locks held")
    }

    @Test("A wide terminal shows every column")
    func wideList() {
        let lines = Report.list([client(identifier: "alice")], width: 200)
        for title in ["UID", "SOCKETS", "AVOIDED"] { #expect(lines[0].contains(title)) }
    }

    @Test("Sockets of a client fit 80 columns")
    func narrowShow() {
        let lines = Report.show(client(identifier: "alice"), width: 80)
        #expect(lines.allSatisfy { $0.count <= 80 })
        #expect(lines.contains { $0.contains("0000000100000002") && $0.contains("127.0.0.1:5060") })
    }

    @Test("With colours a report says the same")
    func colours() {
        let clients = [client(identifier: "org.example.alice")]
        for width in [80, 40, 200] {
            let plain = Report.list(clients, width: width)
            let painted = Report.list(clients, width: width, paint: .colours)
            #expect(painted != plain)
            #expect(painted.map { $0.replacing(/\u{1B}\[[0-9;]*m/, with: "") } == plain)
        }
        #expect(Report.list(clients, width: 80, paint: .colours)[1].contains("\u{1B}[36msuspended\u{1B}[0m"))
    }

    @Test("A remedy is wrapped below its finding without a cut")
    func findings() {
        let remedy = "Start one: systemctl start nightbelld, or nightbelld --user for yourself; or say where."
        let findings = [Finding("supervisor", .missing, "It is not there at all.", remedy: remedy)]
        let lines = Report.findings(findings, width: 60)
        #expect(lines.allSatisfy { $0.count <= 60 } && lines.count > 4)
        #expect(lines.joined().replacing(" ", with: "").contains(remedy.replacing(" ", with: "")))
        #expect(Report.findings(findings, width: nil).count == 4)
    }

    @Test("An empty list has only the header")
    func emptyList() {
        #expect(Report.list([], width: 80).count == 1)
    }

    @Test("One client in detail, sockets included")
    func show() {
        let text = Report.show(client(identifier: "alice"), width: nil).joined(separator: "\n")
        for part in [
            "alice", "4711 of uid 1000, connected for 16m 40s",
            "suspended for 12m 5s", "voip", "every 10m, due within 9m 10s",
            "ring", "softphone --account alice", "/srv", "file locks held", "wakes socket",
            "0000000100000002",
            "tcp", "127.0.0.1:5060", "armed",
        ] {
            #expect(text.contains(part), "\(part)")
        }
    }

    @Test("A planned fetch says why it waits")
    func fetchObstacle() {
        var wire = WireClientInfo()
        wire.fetch.nextInMs = 60_000
        func text() -> String { Report.show(ClientInfo(wire), width: nil).joined(separator: "\n") }
        #expect(!text().contains("waits"))
        for (obstacle, words, name) in [
            (.networkDown, "the network is down", "network_down"),
            (.shortage, "memory or processors are short", "shortage"),
            (.machineSleeps, "the machine is about to sleep", "machine_sleeps"),
            (.places, "as many fetches are", "places"),
            (.placesOfUser, "as many fetches of its user", "places_of_user"),
        ] as [(WireFetchObstacle, String, String)] {
            wire.fetch.obstacle = obstacle
            #expect(text().contains("next within 1m, waits: \(words)"), "\(text())")
            let json = ClientInfo(wire).json(detailed: true).text
            #expect(json.contains(#""obstacle":"\#(name)""#), "\(json)")
        }
    }

    @Test("A program's memory that was written to swap is shown, and why it was not")
    func pagedOut() {
        var wire = WireClientInfo()
        func text() -> String { Report.show(ClientInfo(wire), width: nil).joined(separator: "\n") }
        #expect(!text().contains("paged out"))
        #expect(ClientInfo(wire).json(detailed: false).text.contains(#""paged_out":null"#))
        wire.pagedOut.bytes = 3 << 20
        wire.pagedOut.totalBytes = 7 << 20
        #expect(text().contains("3.0 MiB in the last sleep, 7.0 MiB in all"))
        wire.pagedOut.limit = "there is no swap"
        #expect(text().contains("7.0 MiB in all; there is no swap"))
        #expect(
            ClientInfo(wire).json(detailed: false).text.contains(
                #""paged_out":{"bytes":3145728,"total_bytes":7340032,"limit":"there is no swap"}"#))
        wire.pagedOut.totalBytes = 0
        #expect(!text().contains("MiB in all") && text().contains("there is no swap"))
    }

    @Test("A client without a connection has neither a time of it nor a method of suspension")
    func showWithoutConnection() {
        var wire = WireClientInfo()
        wire.identifier = "alice"
        wire.processID = 4_711
        wire.state = .launching
        let text = Report.show(ClientInfo(wire), width: nil).joined(separator: "\n")
        #expect(text.contains("4711 of uid 0, not connected"))
        #expect(!text.contains("suspension"))
        wire.processID = 0
        #expect(Report.show(ClientInfo(wire), width: nil).joined().contains("none, of uid 0, not connected"))
    }

    @Test("A line of JSON has the documented members")
    func json() {
        let text = client(identifier: "alice").json(detailed: true).text
        for member in [
            #""identifier":"alice""#, #""process_id":4711"#, #""state":"suspended""#,
            #""in_state_ms":725000"#,
            #""keep_alive_timeout_ms":600000"#, #""keep_alive_due_in_ms":550000"#, #""wakes_socket":3"#,
            #""asleep_ns":800000000000"#, #""token":"0000000100000002""#,
            #""arguments":["softphone","--account","alice"]"#,
        ] {
            #expect(text.contains(member), "\(member) in \(text)")
        }
        #expect(!client(identifier: "alice").json(detailed: false).text.contains("sockets\":["))
    }

    @Test("An event is one line; lost ones are reported")
    func events() {
        var wire = WireWatchEvent()
        wire.identifier = "alice"
        wire.kind = "wake"
        wire.detail = "socket\n"
        wire.state = .background
        #expect(
            Report.event(ClientEvent(wire), clock: "10:00:00.000", width: nil)
                == ["10:00:00.000  alice  wake  background  socket\\u000a"])
        wire.dropped = 3
        let lines = Report.event(ClientEvent(wire), clock: "10:00:00.000", width: 30)
        #expect(lines.allSatisfy { $0.count <= 30 })
        #expect(lines[0].hasPrefix("10:00:00.000  … 3 events"))
        wire.dropped = 0
        #expect(
            Report.event(ClientEvent(wire), clock: "10:00:00.000", width: 30) == [
                "10:00:00.000  alice wake", "              background", "              socket\\u000a",
            ])
        wire.kind = "state"
        wire.detail = "background → suspending"
        #expect(
            Report.event(ClientEvent(wire), clock: "10:00:00.000", width: nil)
                == ["10:00:00.000  alice  state  background → suspending"], "the state is said once")
    }

    @Test("A status fits any width and shows the configuration")
    func status() {
        var wire = WireSupervisorStatus()
        wire.version = "1"
        wire.suspension = "signal"
        wire.suspensionDetail = "no cgroup v2"
        wire.clientsByState = ["suspended": 2, "active": 0]
        wire.memoryBytes = 8 << 20
        wire.noDeadline = true
        let status = SupervisorStatus(wire)
        let text = Report.status(status, socketPath: "/s", width: nil).joined(separator: "\n")
        for part in ["signal (no cgroup v2)", "2: 2 suspended", "8.0 MiB", "none", "no file was read"] {
            #expect(text.contains(part), "\(part) in \(text)")
        }
        #expect(Report.status(status, socketPath: "/s", width: 20).allSatisfy { $0.count <= 20 })
        #expect(status.json.text.contains(#""next_deadline_ms":null"#))
    }

    @Test("A status has pings by profile, and the memory that clients gave back")
    func offload() {
        var wire = WireSupervisorStatus()
        wire.memoryBytes = 8 << 20
        wire.memoryReclaimedBytes = 3 << 30
        wire.offloadByProfile["irc"] = .with {
            $0.sent = 4
            $0.wakesAvoided = 9
        }
        wire.offloadByProfile["xmpp"] = .with {
            $0.sent = 1
            $0.answered = 3
        }
        let status = SupervisorStatus(wire)
        #expect(status.offloadByProfile["irc"]?.wakesAvoided == 9 && status.offloadByProfile["sip"] == nil)
        let text = Report.status(status, socketPath: "/s", width: nil).joined(separator: "\n")
        #expect(text.contains("8.0 MiB; clients gave back 3.0 GiB"))
        // Of all profiles together.
        #expect(text.contains("5 sent, 0 confirmed, 3 answered, 0 absorbed, 9 wakes avoided"))
        #expect(
            status.json.text.contains(
                #""offload_by_profile":{"irc":{"sent":4,"confirmed":0,"answered":0,"absorbed":0,"wakes_avoided":9},"xmpp":{"sent":1,"confirmed":0,"answered":3,"absorbed":0,"wakes_avoided":0}}"#
            ))
        // Each figure once.
        #expect(!status.json.text.contains(#""offload":"#))
        #expect(status.json.text.contains(#""memory_reclaimed_bytes":3221225472"#))
    }

    @Test("A status has the sources of facts, the monitor and why the machine does not wake")
    func machine() {
        var wire = WireSupervisorStatus()
        let quiet = Report.status(SupervisorStatus(wire), socketPath: "/s", width: nil).joined(
            separator: "\n")
        #expect(!quiet.contains("monitor") && !quiet.contains("alarm"))
        var network = WireSupervisorStatus.Source()
        network.name = "network"
        network.isAvailable = true
        var power = WireSupervisorStatus.Source()
        power.name = "power"
        power.reason = "there is no UPower"
        wire.sources = [network, power]
        wire.monitorProcessID = 812
        wire.alarmProblem = "it has no real-time clock that can wake it"
        wire.notRunning = ["org.example.bot", "org.example.phone"]
        let lines = Report.status(SupervisorStatus(wire), socketPath: "/s", width: nil)
        func text(_ name: String) -> String? {
            lines.first { $0.hasPrefix(name + " ") }
                .map { String($0.dropFirst(name.count).drop { $0 == " " }) }
        }
        #expect(text("network") == "known" && text("power") == "unknown: there is no UPower")
        #expect(text("monitor") == "process 812")
        #expect(text("not running") == "org.example.bot, org.example.phone")
        wire.notRunningUnnamed = 20
        let more = Report.status(SupervisorStatus(wire), socketPath: "/s", width: nil)
        #expect(more.contains { $0.hasSuffix(" org.example.bot, org.example.phone and 20 more") })
        #expect(text("alarm") == "the machine does not wake for keep-alives: \(wire.alarmProblem)")
    }

    private func client(identifier: String) -> ClientInfo {
        var wire = WireClientInfo()
        wire.identifier = identifier
        wire.clientID = "c1"
        wire.processID = 4_711
        wire.uid = 1_000
        wire.state = .suspended
        wire.inStateMs = 725_000
        wire.suspension = "signal"
        wire.connectedMs = 1_000_000
        wire.asleepSinceHelloNs = 800_000_000_000
        wire.modes = [.voip]
        wire.socketCount = 1
        wire.keepAliveTimeoutMs = 600_000
        wire.keepAliveDueInMs = 550_000
        wire.backgroundTasks = ["ring"]
        wire.counters["wakes_socket"] = 3
        wire.counters.asleepNs = 800_000_000_000
        wire.warnings = ["file locks held"]
        wire.launch.arguments = ["softphone", "--account", "alice"]
        wire.launch.directory = "/srv"
        var socket = WireClientInfo.Socket()
        socket.token = 0x1_0000_0002
        socket.tag = .voip
        socket.kind = "tcp"
        socket.peer = "127.0.0.1:5060"
        socket.condition = "armed"
        wire.sockets = [socket]
        return ClientInfo(wire)
    }
}
