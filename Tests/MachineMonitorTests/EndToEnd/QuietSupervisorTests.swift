import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// Clients that sleep, with observations and with media that they could have: nothing runs for them.
@Suite(
    "A quiet supervisor", .serialized, .timeLimit(.minutes(40)),
    .disabled(if: isSanitized, "it has threads of its own"))
struct QuietSupervisorTests {
    private static let device = "/org/bluez/hci0/dev_11_22_33_44_55_66"

    private func clients(
        _ supervisor: SupervisorProcess, _ environment: [String: String]
    ) throws -> [Example] {
        let clients = try [
            ["location"], ["bluetooth", Self.device, Self.device + "/service0010/char0011"], ["network"],
            ["accessory", "/dev/serial/by-id/usb-adapter"], ["peripheral", "/org/bluez/hci0"], ["unlock"],
            ["audio", "/bin/true"],
        ].filter { environment["DBUS_SYSTEM_BUS_ADDRESS"] != nil || $0[0] != "peripheral" }
            .map { try supervisor.example("org.example.\($0[0])", $0, environment: environment) }
        for client in clients { try client.fallsAsleep() }
        return clients
    }

    /// Waits until nothing has run for ten seconds. Whatever else happens on the machine, such as interfaces
    /// of other tests that come and go, is a reason to run, so there is more than one attempt.
    private func staysQuiet(_ supervisor: SupervisorProcess, monitors: Int) throws {
        _ = deviceDirectory
        // Those of sessions end when no client needs them.
        let hasSettled = try eventually(within: 60_000) { try supervisor.processes().count == 2 + monitors }
        try check(hasSettled, "processes: \(try supervisor.processes())")
        let processes = try supervisor.processes()
        func switches() throws -> [Int] { try processes.map { try contextSwitches(of: $0) } }
        var before = try switches()
        let isQuiet = try eventually(within: 120_000) {
            poll(nil, 0, 10_000)
            let now = try switches()
            defer { before = now }
            return now == before
        }
        try check(isQuiet, "keeper, worker and monitor never are quiet")
        #expect(try supervisor.processes() == processes)
    }

    @Test("With a bus, BlueZ, logind and PipeWire, neither supervisor nor monitor runs while all is quiet")
    func withBus() throws {
        let server = try PipeWireServer()
        let mocks = [
            try MockService(
                server.bus, template: "logind", name: "org.freedesktop.login1",
                path: "/org/freedesktop/login1"),
            try MockService(server.bus, template: "bluez5", name: "org.bluez", path: "/"),
        ]
        try server.start()
        let supervisor = try SupervisorProcess(environment: server.environment)
        let clients = try clients(supervisor, server.environment)
        try staysQuiet(supervisor, monitors: 1)
        // It is still there for them.
        try mocks[1].tell("org.bluez.Mock.AddAdapter", "hci0", "machine")
        try clients[4].reports("is woken: socket")
        for client in clients { client.end() }
        mocks.forEach { $0.end() }
        server.stop()
    }

    @Test("Without a bus they do not run, either")
    func withoutBus() throws {
        let supervisor = try SupervisorProcess()
        let clients = try clients(supervisor, [:])
        try staysQuiet(supervisor, monitors: 1)
        for client in clients { client.end() }
    }
}
