/// A worker's inputs.
package struct WorkerStartup: ~Copyable, Sendable {
    /// Everything that the workers before it have written through.
    package var store: RecordStore
    package let link: KeeperLink
    /// No worker ran before it: stopped processes were left by another supervisor.
    package let isFirst: Bool
    /// Another worker may still be kept instead: say `ready`, then do nothing until told to act.
    package let mustWait: Bool

    package init(store: consuming RecordStore, link: KeeperLink, isFirst: Bool, mustWait: Bool) {
        self.store = store
        self.link = link
        self.isFirst = isFirst
        self.mustWait = mustWait
    }

    package consuming func takeStore() -> RecordStore { store }
}
