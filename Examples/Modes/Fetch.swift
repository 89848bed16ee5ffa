import Nightbell

/// Fetches new content at moments that the supervisor finds good, asleep or not; also in a process that is
/// launched for it.
func fetchNow() throws -> Client {
    var handlers = handlers()
    handlers.fetching {
        report("fetches")
        return .newData
    }
    let client = try Client(configuration("fetch", [.fetch]), handlers: handlers)
    try client.setMinimumFetchInterval(.minimum)
    try enterBackground(client)
    return client
}
