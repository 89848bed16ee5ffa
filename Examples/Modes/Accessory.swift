import Nightbell

/// Is woken, or launched, when a device is attached or detached, such as `/dev/serial/by-id/usb-reader`. Hand the opened
/// node over as `.device`, and its data wakes as well.
func watchAccessory(_ paths: [String]) throws -> Client {
    guard let path = paths.first else { return try explain() }
    let client = try Client(configuration("accessory", [.externalAccessory]), handlers: handlers())
    try client.observe("reader", .accessory(path: path))
    try client.enterBackground()
    return client
}
