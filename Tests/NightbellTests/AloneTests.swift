import Nightbell
import NightbellWire
import Testing

/// Clients that need no supervisor.
@Suite struct AloneTests {
    private func configuration(_ supervisor: FakeSupervisor) -> Client.Configuration {
        .init(identifier: "org.example.alone", socketPath: supervisor.path, requiresSupervisor: false)
    }

    @Test func runsWithoutASupervisorAndRestoresStateToTheFirstOne() throws {
        let supervisor = try FakeSupervisor()
        supervisor.stop()
        let diary = EventLog()
        let client = try Client(configuration(supervisor), handlers: diary.handlers())
        #expect(!client.isConnected)
        let pipe = try Pipe()
        let parked = try client.handOver(pipe.descriptor, as: .device, name: "early")
        try client.setKeepAliveTimeout(.milliseconds(600)) { diary.note("keep-alive") }
        try client.enterBackground()
        let task = try client.beginBackgroundTask("call")
        #expect(task.isValid)
        #expect(try client.backgroundTimeRemaining() == .unlimited)
        #expect(try thrown { try client.saveState([1]) }.code == .disconnected)
        // The library runs it.
        try diary.expect("keep-alive")
        try supervisor.start()
        try diary.expect("reconnected")
        #expect(client.isConnected)
        try client.end(task)
        try client.release(parked)
        let told = supervisor.unexpected
        #expect(told.contains { $0.handOver.sockets.map(\.name) == ["early"] })
        #expect(told.contains { $0.setKeepAliveTimeout.timeoutMs == 600 })
        #expect(told.contains { $0.beginBackgroundTask.name == "call" })
        client.close()
    }

    @Test func requiresASupervisorByDefault() throws {
        let supervisor = try FakeSupervisor()
        supervisor.stop()
        var configuration = configuration(supervisor)
        configuration.requiresSupervisor = true
        #expect(try thrown { _ = try Client(configuration) }.code == .cannotConnect)
    }
}
