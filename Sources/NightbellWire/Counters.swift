extension WireCounters {
    /// Zero: it has not counted yet, or nothing is counted by this name.
    package subscript(name: String) -> UInt64 {
        get { counts[name, default: 0] }
        set { counts[name] = newValue }
    }
}
