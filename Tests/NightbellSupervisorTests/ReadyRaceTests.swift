import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// A socket that is still watched since an earlier sleep, and a client's ReadyToSuspend, in one turn.
@Suite struct ReadyRaceTests {
    enum Kind: CaseIterable {
        /// Delivered by the time that the sending call returns, also on a busy machine.
        case unix
        case tcp

        func pair() throws -> Pair {
            switch self {
            case .unix: try Pair.unix()
            case .tcp: try Pair.tcp()
            }
        }
    }

    /// Stopped, the supervisor finds both at once; the packet came first.
    @Test(arguments: Kind.allCases) func aPacketBeforeReadyWakesTheSleeper(kind: Kind) throws {
        let daemon = try DaemonProcess(suspension: "none")
        let worker = try daemon.worker()
        let name = "org.example.phone"
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name)
        let administrator = try WireClient(path: daemon.socketPath)
        let pair = try kind.pair()
        _ = try client.handOver(pair.near)
        try client.goToSleep()
        try client.wait(for: name, toBe: .suspended, path: daemon.socketPath)
        // If it is woken for another reason, its socket stays watched.
        var request = WireWakeClient()
        request.identifier = name
        try administrator.ask(.wakeClient(request))
        try client.finish(try client.wake())
        let epoch = try client.prepare()

        #expect(stop(worker))
        try #require(eventually { threads(of: worker, are: "T") })
        try pair.send("INVITE")
        try #require(eventually { Poll.now(pair.near).contains(.readable) })
        try client.ready(epoch)
        kill(worker, SIGCONT)

        let wake = try client.wake()
        #expect(wake.reasons == [.socket])
        #expect(pair.received() == "INVITE")
    }

    /// A frozen process cannot repeat a request that it sent after ReadyToSuspend and that died with the
    /// worker.
    @Test func aRequestBehindReadyThatAWorkerTookWithItCallsItsSenderBack() throws {
        let daemon = try DaemonProcess(
            suspension: "none",
            before: "export NIGHTBELL_FAULT=1 NIGHTBELL_FAULT_AT='after a sleeper was heard'")
        let worker = try daemon.worker()
        let name = "org.example.phone"
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(name)
        let pair = try Kind.unix.pair()
        _ = try client.handOver(pair.near)
        try client.enterBackground()
        let epoch = try client.prepare()

        #expect(stop(worker))
        try #require(eventually { threads(of: worker, are: "T") })
        try client.ready(epoch)
        try client.send(.mediaActivity(WireMediaActivity()))
        kill(worker, SIGCONT)

        #expect(try client.wake().reasons == [.clientMessage])
        #expect(try WireClient(path: daemon.socketPath).status().restarts == 1)
    }
}
