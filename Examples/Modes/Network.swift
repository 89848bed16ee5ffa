import Nightbell

/// Is told of another network, and which of its sockets cannot work over it.
func followNetwork() throws -> Client {
    var handlers = handlers()
    handlers.networkChanged = { lost in
        // Connect again here; a parked socket that is lost has to be released.
        report("has another network, with \(lost.count) sockets lost")
    }
    let client = try Client(configuration("network", [.voip]), handlers: handlers)
    try enterBackground(client)
    return client
}
