extension Duration {
    /// A duration from a message. More than 292 years, the limit of 64-bit nanoseconds, counts as unlimited.
    package init(wireMilliseconds: UInt64) {
        self = .milliseconds(Int64(clamping: min(wireMilliseconds, UInt64(Int64.max / 1_000_000))))
    }
}
