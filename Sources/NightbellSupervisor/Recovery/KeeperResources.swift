import Glibc
package import Keeper
package import LinuxSystem

/// The resources that a keeper holds from its start.
package enum KeeperResources {
    /// Locks the runtime directory, listens, and makes the shared state.
    ///
    /// - Throws: `EADDRINUSE` while another supervisor uses the directory or the socket.
    package static func make(_ configuration: SupervisorConfiguration) throws(SupervisorError) -> RecordStore
    {
        var store = RecordStore()
        let directory = try RuntimeDirectory(configuration.runtimeDirectory)
        let listener = try Acceptance.listen(configuration)
        do {
            let limit = Acceptance.currentDescriptorLimit()
            // A socket has a descriptor; a client without a process has none. Unused rows take no memory.
            let shape = SharedStateTable.Shape(records: 1 << 18, marks: min(limit, 1 << 20))
            let sharedState = try SharedStateTable.create(shape)
            put(.lock, directory.takeLock(), &store)
            put(.listener, listener.takeDescriptor(), &store)
            put(.sharedState, sharedState, &store)
        } catch {
            Acceptance.unlink(configuration)
            throw SupervisorError(.loop, error, "cannot set up")
        }
        _ = store.put(.place, place(configuration))
        return store
    }

    /// Adds advice to the error where there is any.
    package static func error(_ error: SystemError) -> SupervisorError {
        SupervisorError(.loop, error, "cannot set up")
    }

    /// Removes the socket, so that no stale path is left behind.
    package static func remove(_ configuration: SupervisorConfiguration) { Acceptance.unlink(configuration) }

    private static func put(
        _ key: RecordKey, _ descriptor: consuming OwnedDescriptor, _ store: inout RecordStore
    ) {
        _ = store.put(key, [], descriptor)
    }

    /// A worker with another directory or socket would be another supervisor.
    static func place(_ configuration: SupervisorConfiguration) -> [UInt8] {
        Array((configuration.runtimeDirectory + "\0" + configuration.socketPath).utf8)
    }
}
