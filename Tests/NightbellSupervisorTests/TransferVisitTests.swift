import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellSupervisor
import Testing

/// The transfer processes of users with sessions for which no client comes.
@Suite struct TransferVisitTests {
    @Test("A store with sessions has a process now and then, one without has none")
    func visits() throws {
        let directory = try TemporaryDirectory()
        let user = geteuid() == 0 ? 65_534 : geteuid()
        let store = "\(directory.path)/state/transfers/\(user)"
        for path in ["", "/state", "/state/transfers", "/state/transfers/\(user)"] {
            mkdir(directory.path + path, 0o755)
            chmod(directory.path + path, 0o755)
        }
        chown(store, user, user)
        mkdir(store + "/sessions", 0o755)
        mkdir(store + "/sessions/1", 0o755)
        let program = directory.path + "/transfer"
        // The third one removes the session.
        let text = """
            #!/bin/sh
            printf x >> \(directory.path)/starts
            [ "$(cat \(directory.path)/starts)" != xxx ] || rmdir \(store)/sessions/1
            """
        _ = try OwnedDescriptor(opening: program, O_WRONLY | O_CREAT, mode: 0o755)
        try SmallFile.write(text, to: program)
        let supervisor = try TestSupervisor { configuration in
            configuration.stateDirectory = directory.path + "/state"
            var transfers = TransferProgram(path: program)
            transfers.visitInterval = .milliseconds(300)
            configuration.transfers = transfers
        }
        #expect(eventually(within: 60_000) { starts(directory) == 3 })
        #expect(!eventually(within: 1_500) { starts(directory) > 3 })
        try supervisor.stop()
    }

    private func starts(_ directory: TemporaryDirectory) -> Int {
        (try? SmallFile.readText(directory.path + "/starts"))?.count ?? 0
    }
}
