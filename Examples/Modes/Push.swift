import Nightbell

/// Is woken, or launched, for messages that its server leaves at the push service, and prints each once. The
/// server would be given the address.
func takePushes() throws -> Client {
    var handlers = handlers()
    handlers.handlingPushes { message in
        report("message \(message.id): \(String(decoding: message.body, as: UTF8.self))")
        return .newData
    }
    let client = try Client(configuration("push", []), handlers: handlers)
    report("address \(try client.pushEndpoint())")
    try enterBackground(client)
    return client
}
