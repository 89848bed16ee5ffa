/// What a worker starts with.
package struct Inheritance: ~Copyable, Sendable {
    /// Everything that the workers before it have written through.
    package var store: RecordStore
    package let link: KeeperLink
    /// Nobody was before it: what is found stopped was left by another supervisor.
    package let isFirst: Bool
    /// Another worker may still turn out to be the right one: say `ready`, then do nothing until told to act.
    package let mustWait: Bool

    package init(store: consuming RecordStore, link: KeeperLink, isFirst: Bool, mustWait: Bool) {
        self.store = store
        self.link = link
        self.isFirst = isFirst
        self.mustWait = mustWait
    }

    package consuming func takeStore() -> RecordStore { store }
}
