import Nightbell

/// Is launched only once its user's home is there: its manifest says `waitsForUnlock: true`.
func waitForUnlock() throws -> Client {
    let client = try Client(configuration("unlock", [.voip]), handlers: handlers())
    report("has been launched: its files are there")
    if client.launchContext == nil { try client.enterBackground() }
    return client
}
