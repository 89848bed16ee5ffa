extension WireLaunchSpecification {
    /// The longest launch specification that a supervisor records, in bytes of its encoding.
    package static let maximumBytes = 16 * 1024
}
