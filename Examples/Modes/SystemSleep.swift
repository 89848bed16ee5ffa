import Nightbell

/// Keeps an account alive: its handler also runs before the machine sleeps, and wakes the machine when it is
/// due.
func runBeforeSleep() throws -> Client {
    let client = try Client(configuration("sleep", [.voip]), handlers: handlers())
    try client.setKeepAliveTimeout(client.minimumKeepAliveTimeout) {
        report("keeps its account alive")
    }
    try enterBackground(client)
    return client
}
