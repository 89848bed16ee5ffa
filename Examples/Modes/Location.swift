import Nightbell

/// Is woken, or launched, when the machine comes home or leaves.
func watchHome() throws -> Client {
    let client = try Client(configuration("location", [.location]), handlers: handlers())
    try client.observe("home", .region(latitude: 52.52, longitude: 13.405, radius: 200))
    try client.enterBackground()
    return client
}
