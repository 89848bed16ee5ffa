import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// The transfer processes of users with sessions for which no client comes.
@Suite struct TransferVisitTests {
    private let directory: TemporaryDirectory
    private let user = geteuid() == 0 ? 65_534 : geteuid()

    private var store: String { "\(directory.path)/state/transfers/\(user)" }

    /// There is a store with one session.
    init() throws {
        directory = try TemporaryDirectory()
        for path in ["", "/state", "/state/transfers", "/state/transfers/\(user)"] {
            mkdir(directory.path + path, 0o755)
            chmod(directory.path + path, 0o755)
        }
        chown(store, user, user)
        mkdir(store + "/sessions", 0o755)
        mkdir(store + "/sessions/1", 0o755)
    }

    /// A program that notes each of its starts.
    private func program(_ interpreter: String, _ text: String) throws -> TransferProgram {
        let path = directory.path + "/transfer"
        _ = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o755)
        try SmallFile.write("#!\(interpreter)\n" + text, to: path)
        return TransferProgram(path: path)
    }

    private var starts: Int { (try? SmallFile.readText(directory.path + "/starts"))?.count ?? 0 }

    @Test("A store with sessions has a process now and then, one without has none")
    func visits() throws {
        // The third one removes the session.
        var transfers = try program(
            "/bin/sh",
            """
            printf x >> \(directory.path)/starts
            [ "$(cat \(directory.path)/starts)" != xxx ] || rmdir \(store)/sessions/1
            """)
        transfers.visitInterval = .milliseconds(300)
        let supervisor = try TestSupervisor { configuration in
            configuration.stateDirectory = directory.path + "/state"
            configuration.transfers = transfers
        }
        #expect(eventually(within: 60_000) { starts == 3 })
        #expect(!eventually(within: 1_500) { starts > 3 })
        try supervisor.stop()
    }

    @Test("A process that ended because its transfers wait is started for the next good moment")
    func moments() throws {
        let monitor = try FakeMonitor()
        // The plan of the first two has discretionary tasks.
        let transfers = try program(
            "/usr/bin/python3",
            """
            import os, socket
            path = "\(directory.path)/starts"
            with open(path, "a") as file: file.write("x")
            count = os.path.getsize(path)
            socket.socket(fileno=3).send(bytes([0x12, 2, 8, 1] if count < 3 else [0x12, 0]))
            """)
        let supervisor = try TestSupervisor { configuration in
            configuration.stateDirectory = directory.path + "/state"
            configuration.transfers = transfers
            configuration.monitor = monitor.program
        }
        try monitor.start()
        #expect(starts == 1)
        try report(metered: true, monitor)
        #expect(!eventually(within: 500) { starts > 1 })
        try report(metered: false, monitor)
        // The second one ends as if it had not read that the moment is good: the third one follows.
        #expect(eventually(within: 60_000) { starts == 3 })
        // Nothing waits any more.
        try monitor.waitForEnd()
        try supervisor.stop()
    }

    @Test("Transfers that can wait are interrupted when the machine is short, also if nothing else happens")
    func shortage() throws {
        // It notes the moments that it is told of: field 3 of demands.
        let transfers = try program(
            "/usr/bin/python3",
            """
            import socket
            connection = socket.socket(fileno=3)
            connection.setblocking(True)
            connection.send(bytes([0x12, 2, 8, 1]))
            while demand := connection.recv(65536):
                with open("\(directory.path)/starts", "a") as file:
                    if b"\\x18\\x01" in demand: file.write("good ")
                    if b"\\x18\\x02" in demand: file.write("bad ")
            """)
        let supervisor = try TestSupervisor { configuration in
            configuration.stateDirectory = directory.path + "/state"
            configuration.transfers = transfers
            configuration.pressure = (directory.path, .milliseconds(100))
        }
        let moments = { (try? SmallFile.readText(directory.path + "/starts")) ?? "" }
        #expect(eventually(within: 60_000) { moments() == "bad good " })
        let pressure = directory.path + "/cpu"
        _ = try OwnedDescriptor(opening: pressure, O_WRONLY | O_CREAT, mode: 0o644)
        try SmallFile.write("some avg10=99.00 avg60=0.00 avg300=0.00 total=0\n", to: pressure)
        #expect(eventually(within: 10_000) { moments() == "bad good bad " })
        unlink(pressure)
        #expect(eventually(within: 10_000) { moments() == "bad good bad good " })
        try supervisor.stop()
    }

    private func report(metered: Bool, _ monitor: FakeMonitor) throws {
        try monitor.report(
            .network(
                .with {
                    $0.addresses = [Data([10, 0, 0, 1])]
                    $0.defaultRoutes = "via 10.0.0.254"
                    $0.isUp = true
                    $0.metered = metered ? .yes : .no
                }))
    }
}
