import Glibc
import LinuxSystem
import Logging
import NightbellCore
import TransferWire

/// The sockets and the stores of users with transfers.
extension Supervisor {
    /// Where the clients of a user find its transfer process; nil: it has none. Root transfers nothing, and
    /// only root can start the processes of others.
    func transferSocket(of user: UserID) -> String? {
        let own = geteuid()
        guard configuration.transfers != nil, configuration.stateDirectory != nil,
            own == 0 ? user != 0 : user == own
        else { return nil }
        let path = configuration.runtimeDirectory + "/transfers/\(user)"
        return path.utf8.count <= UnixAddress.longestPath ? path : nil
    }

    private func store(of user: UserID) -> String? {
        configuration.stateDirectory.map { $0 + "/transfers/\(user)" }
    }

    /// Has a socket for the clients of a user. A process is started once one connects.
    @discardableResult
    func serveTransfers(of user: UserID) -> TransferService? {
        if let service = transferCare.services[user] {
            // A client that is about to connect shows whether the process reads.
            if service.process != nil, service.unsent.isEmpty {
                service.unsent.append(WireTransferDemand())
                transferCare.look(at: now)
            }
            return service
        }
        guard let program = configuration.transfers, let socket = transferSocket(of: user),
            let store = store(of: user), transferCare.services.count < TransferCare.mostUsers
        else { return nil }
        do {
            try TransferDirectories.make(configuration.runtimeDirectory + "/transfers", of: geteuid(), 0o711)
            for directory in [store.parentDirectory.parentDirectory, store.parentDirectory] {
                try TransferDirectories.make(directory, of: geteuid(), 0o711)
            }
            try TransferDirectories.make(store, of: user, 0o700)
            if user != geteuid() { try TransferDirectories.letPass(store.parentDirectory.parentDirectory) }
            let service = try TransferService(
                user, number: transferCare.nextNumber(),
                program.program(of: user, changesUser: user != geteuid(), directory: store), socket: socket,
                loop)
            transferCare.services[user] = service
            return service
        } catch {
            log(.transfers, .error, of: user, "there are no transfers for uid \(user): \(error)")
            return nil
        }
    }

    /// The first turn: processes that the last worker had started have ended with it, and so have its
    /// sockets.
    func resumeTransfers() {
        guard configuration.transfers != nil, let state = configuration.stateDirectory else { return }
        let names = (try? SmallFile.names(in: state + "/transfers")) ?? []
        for user in names.compactMap({ UserID($0) }).sorted() {
            guard let service = serveTransfers(of: user), hasWork(service.user) else { continue }
            service.isWanted = true
            transferCare.look(at: now)
        }
        tellSubscriptions(of: Set(launches.declarations.values.compactMap(\.subscriber)))
    }

    /// Whether a user's store has sessions: each has a directory.
    func hasWork(_ user: UserID) -> Bool {
        guard let store = store(of: user) else { return false }
        // The user can put anything there, and the supervisor may be root.
        let sessions = try? SmallFile.names(in: store + "/sessions", limit: 1, followsLink: false)
        return sessions?.isEmpty == false
    }
}

extension String {
    /// The path without its last component.
    fileprivate var parentDirectory: String {
        lastIndex(of: "/").map { String(self[..<$0]) } ?? self
    }
}
