extension Duration {
    /// A duration as messages have it. More than 292 years, which is more than there is room for in nanoseconds, is for
    /// ever.
    package init(wireMilliseconds: UInt64) {
        self = .milliseconds(Int64(clamping: min(wireMilliseconds, UInt64(Int64.max / 1_000_000))))
    }
}
