import Nightbell

/// Is woken, or launched, when a Bluetooth device connects or disconnects, and by the notifications of its
/// characteristic. The arguments are the object paths that BlueZ gives them.
func watchBluetooth(_ paths: [String]) throws -> Client {
    guard paths.count == 2 else { explain() }
    let client = try Client(configuration("bluetooth", [.bluetoothCentral]), handlers: handlers())
    try client.observe("device", .bluetoothDevice(path: paths[0]))
    try client.observe("heart rate", .characteristic(path: paths[1]))
    try enterBackground(client)
    return client
}
