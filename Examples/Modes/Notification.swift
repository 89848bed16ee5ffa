import Nightbell

/// Reminds its user after some seconds, asleep or not, and is woken, or launched, when the reminder is
/// activated. In the foreground it is told of the time instead.
func notify(_ seconds: String) throws -> Client {
    guard let seconds = Int(seconds) else { explain() }
    var handlers = handlers()
    handlers.notificationDelivered = { report("is reminded: \($0.notification.title)") }
    handlers.notificationActivated = { activation in
        let payload = String(decoding: activation.notification.payload, as: UTF8.self)
        report("\(activation.notification.identifier) is activated (\(activation.action)): \(payload)")
    }
    let client = try Client(configuration("notification", []), handlers: handlers)
    // A process that was launched for a notification has scheduled it before.
    guard client.launchContext == nil else { return client }
    try client.notifications.schedule(
        LocalNotification(
            "reminder", title: "Time for tea", body: "Water is hot & ready", sound: "alarm-clock-elapsed",
            actions: [.init(key: "snooze", label: "Later")], badge: 1, payload: Array("table 7".utf8),
            trigger: .after(.seconds(seconds))))
    report("has a reminder")
    try enterBackground(client)
    return client
}
