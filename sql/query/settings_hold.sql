select broker_holds from postdate.settings
