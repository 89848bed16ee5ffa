import Nightbell

/// Is launched only once its user's home is there: its manifest says `waitsForUnlock: true`.
func waitForUnlock() throws -> Client {
    let client = try Client(configuration("unlock", [.voip]), handlers: handlers())
    guard client.launchContext == nil else {
        report("has been launched: the home of its user is there")
        return client
    }
    report("was started by hand: only a launch by the supervisor waits for the home of its user")
    try enterBackground(client)
    return client
}
