/// The packets between the supervisor and a monitor.
package enum MonitorPacket {
    /// In bytes, in both directions: more than the subjects that the core admits take, all of the greatest
    /// length.
    package static let maximumBytes = 131_072
}

extension WireLaunchSpecification {
    /// The longest launch specification that a supervisor records, in bytes of its encoding.
    package static let maximumBytes = 16 * 1024
}
