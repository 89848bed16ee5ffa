import Nightbell

/// Follows the machine's location: comes home and leaves, or uses one of three services. A region and a
/// significant change also launch it; `continuous` needs a process, in the background as well; `foreground`
/// needs the foreground, and there no client sleeps.
func followLocation(_ arguments: [String]) throws -> Client {
    guard arguments.count <= 1 else { explain() }
    let name = arguments.first ?? "home"
    let subject: Subject =
        switch name {
        case "home": .region(latitude: 52.52, longitude: 13.405, radius: 200)
        case "significant": .significantLocationChange
        case "continuous": .continuousLocation(distance: 100)
        case "foreground": .foregroundLocation()
        default: explain()
        }
    let client = try Client(configuration("location", [.location]), handlers: handlers())
    try client.observe(name, subject)
    guard case .foregroundLocation = subject else {
        try enterBackground(client)
        return client
    }
    try client.enterForeground()
    report("is in the foreground")
    return client
}
